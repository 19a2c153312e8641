// RUN: xdsl-opt -p cse,dce %s | filecheck %s
// RUN: xdsl-opt -p onnx-cse,onnx-dce %s | filecheck %s --check-prefix OURS

// Passes that know nothing of tokens respect what the ops do: an assign whose token is unused stays, and
// reads on both sides of an assign are not merged.

"state.variable"() <{sym_name = "v", type = tensor<f32>, initial = #onnx.tensor<tensor<f32>, [0.0]>}> : () -> ()

func.func @main(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %a, %t0 = "state.read"() <{variable = @v}> : () -> (tensor<f32>, !state.token)
  %b, %t1 = "state.read"() <{variable = @v}> : () -> (tensor<f32>, !state.token)
  %both = "state.join"(%t0, %t1) : (!state.token, !state.token) -> !state.token
  %t2 = "state.assign"(%x, %both) <{variable = @v}> : (tensor<f32>, !state.token) -> !state.token
  %c, %t3 = "state.read"(%t2) <{variable = @v}> : (!state.token) -> (tensor<f32>, !state.token)
  %d, %t4 = "state.read"(%t2) <{variable = @v}> : (!state.token) -> (tensor<f32>, !state.token)
  %t5 = "state.assign"(%c, %t3, %t4) <{variable = @v}> : (tensor<f32>, !state.token, !state.token) -> !state.token
  func.return %a, %c : tensor<f32>, tensor<f32>
}

// CHECK:       %a, %t0 = "state.read"()
// CHECK-NOT:   state.read
// CHECK:       "state.assign"(%x,
// CHECK:       %c, %t3 = "state.read"(%t2)
// CHECK-NOT:   state.read
// CHECK:       "state.assign"(%c, %t3,

// OURS:        %a, %t0 = "state.read"()
// OURS:        "state.assign"(%x,
// OURS:        %c, %t3 = "state.read"(%t2)
// OURS:        %d, %t4 = "state.read"(%t2)
// OURS:        "state.assign"(%c, %t3,
