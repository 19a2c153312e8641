// RUN: xdsl-opt %s | filecheck %s
// RUN: xdsl-opt %s | xdsl-opt | filecheck %s
// RUN: xdsl-opt --print-op-generic %s | xdsl-opt | filecheck %s

// Stock xdsl-opt reads our text and prints it as it was.

builtin.module attributes {onnx.ir_version = 10 : i64, onnx.opsets = [["", 21 : i64]]} {
  func.func @main(%x: tensor<?x3xf32, #onnx.dims<["N", ""]>> {onnx.name = "x"}) -> (tensor<?x3xf32, #onnx.dims<["N", ""]>> {onnx.name = "y"}) {
    %absent = "onnx.NoValue"() : () -> none
    %high = "onnx.Constant"() <{value = #onnx.tensor<tensor<f32>, [0x7F800000]>}> : () -> tensor<f32>
    %mask = "onnx.Initializer"() <{value = #onnx.tensor<tensor<2x8xi1>, splat true>}> {onnx.outs = ["mask"]} : () -> tensor<2x8xi1>
    %texts = "onnx.Constant"() <{value = #onnx.tensor<tensor<2x!onnx.String>, ["a", "\FF"]>}> : () -> tensor<2x!onnx.String>
    %kept = "onnx.Clip"(%x, %absent, %high) {onnx.name = "clip"} : (tensor<?x3xf32, #onnx.dims<["N", ""]>>, none, tensor<f32>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
    %cond = "onnx.Constant"() <{value = #onnx.tensor<tensor<i1>, [true]>}> : () -> tensor<i1>
    %y = "onnx.If"(%cond) ({
      "onnx.Yield"(%kept) : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> ()
    }, {
      %z = "onnx.LeakyRelu"(%x) <{alpha = 5.000000e-01 : f32}> : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
      "onnx.Yield"(%z) : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> ()
    }) : (tensor<i1>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
    func.return %y : tensor<?x3xf32, #onnx.dims<["N", ""]>>
  }
}

// CHECK:       builtin.module attributes {onnx.ir_version = 10 : i64, onnx.opsets = {{\[\["", 21 : i64\]\]}}} {
// CHECK-NEXT:    func.func @main(%x: tensor<?x3xf32, #onnx.dims<["N", ""]>> {onnx.name = "x"}) -> (tensor<?x3xf32, #onnx.dims<["N", ""]>> {onnx.name = "y"}) {
// CHECK-NEXT:      %absent = "onnx.NoValue"() : () -> none
// CHECK-NEXT:      %high = "onnx.Constant"() <{value = #onnx.tensor<tensor<f32>, [0x7F800000]>}> : () -> tensor<f32>
// CHECK-NEXT:      %mask = "onnx.Initializer"() <{value = #onnx.tensor<tensor<2x8xi1>, splat true>}> {onnx.outs = ["mask"]} : () -> tensor<2x8xi1>
// CHECK-NEXT:      %texts = "onnx.Constant"() <{value = #onnx.tensor<tensor<2x!onnx.String>, ["a", "\FF"]>}> : () -> tensor<2x!onnx.String>
// CHECK-NEXT:      %kept = "onnx.Clip"(%x, %absent, %high) {onnx.name = "clip"} : (tensor<?x3xf32, #onnx.dims<["N", ""]>>, none, tensor<f32>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
// CHECK-NEXT:      %cond = "onnx.Constant"() <{value = #onnx.tensor<tensor<i1>, [true]>}> : () -> tensor<i1>
// CHECK-NEXT:      %y = "onnx.If"(%cond) ({
// CHECK-NEXT:        "onnx.Yield"(%kept) : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> ()
// CHECK-NEXT:      }, {
// CHECK-NEXT:        %z = "onnx.LeakyRelu"(%x) <{alpha = 5.000000e-01 : f32}> : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
// CHECK-NEXT:        "onnx.Yield"(%z) : (tensor<?x3xf32, #onnx.dims<["N", ""]>>) -> ()
// CHECK-NEXT:      }) : (tensor<i1>) -> tensor<?x3xf32, #onnx.dims<["N", ""]>>
// CHECK-NEXT:      func.return %y : tensor<?x3xf32, #onnx.dims<["N", ""]>>
// CHECK-NEXT:    }
// CHECK-NEXT:  }
