// RUN: xdsl-opt --verify-diagnostics %s | filecheck %s

"state.variable"() <{sym_name = "v", type = tensor<f32>, initial = #onnx.tensor<tensor<f32>, [0.0]>}> : () -> ()

func.func @main(%x: tensor<f32>) -> tensor<f32> {
  %a, %t = "state.read"() <{variable = @v}> : () -> (tensor<f32>, !state.token)
  %u = "state.assign"(%x) <{variable = @v}> : (tensor<f32>) -> !state.token
  func.return %a : tensor<f32>
}

// CHECK: nothing orders two accesses of variable 'v': state.read{{.*}} reads it, state.assign{{.*}} writes it
