// RUN: xdsl-opt %s --split-input-file --parsing-diagnostics | filecheck %s

// What a constant cannot be read from is said where it stands.

"onnx.Constant"() <{value = #onnx.tensor<tensor<?xf32>, splat 0.0>}> : () -> tensor<?xf32>

// CHECK: a constant needs a tensor type with known sizes

// -----

"onnx.Constant"() <{value = #onnx.tensor<tensor<2xi8>, [1, 200]>}> : () -> tensor<2xi8>

// CHECK: 200 is no element of int8

// -----

"onnx.Constant"() <{value = #onnx.tensor<tensor<2xi8>, [1]>}> : () -> tensor<2xi8>

// CHECK: int8[2] has 2 elements, but 1 are listed
