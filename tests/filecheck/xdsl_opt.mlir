// RUN: xdsl-opt %s | filecheck %s

// Stock xdsl-opt, with irkit's dialects and passes registered, still reads and prints what is not ours.

func.func @identity(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  func.return %x : tensor<2x3xf32>
}

// CHECK:       func.func @identity(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
// CHECK-NEXT:    func.return %x : tensor<2x3xf32>
// CHECK-NEXT:  }
