// RUN: xdsl-opt -p onnx-lift-state %s | filecheck %s

"state.variable"() <{sym_name = "count", type = tensor<i64>, initial = #onnx.tensor<tensor<i64>, [7]>}> : () -> ()
"state.variable"() <{sym_name = "scale", type = tensor<i64>, initial = #onnx.tensor<tensor<i64>, [2]>, trainable}> : () -> ()

func.func @main(%n: tensor<i64> {onnx.name = "n"}, %p: tensor<i1> {onnx.name = "p"}) -> (tensor<i64> {onnx.name = "y"}) {
  %none = "onnx.NoValue"() : () -> none
  %begin = "state.join"() : () -> !state.token
  %looped = "onnx.Loop"(%n, %none, %begin) ({
  ^bb0(%i: tensor<i64>, %go: tensor<i1>, %before: !state.token):
    %done = "onnx.If"(%p) ({
      %old, %was = "state.read"(%before) <{variable = @count}> : (!state.token) -> (tensor<i64>, !state.token)
      %factor, %seen = "state.read"() <{variable = @scale}> : () -> (tensor<i64>, !state.token)
      %new = "onnx.Mul"(%old, %factor) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %set = "state.assign"(%new, %was) <{variable = @count}> : (tensor<i64>, !state.token) -> !state.token
      "onnx.Yield"(%set) : (!state.token) -> ()
    }, {
      "onnx.Yield"(%before) : (!state.token) -> ()
    }) : (tensor<i1>) -> !state.token
    "onnx.Yield"(%go, %done) : (tensor<i1>, !state.token) -> ()
  }) : (tensor<i64>, none, !state.token) -> !state.token
  %y, %end = "state.read"(%looped) <{variable = @count}> : (!state.token) -> (tensor<i64>, !state.token)
  func.return %y : tensor<i64>
}

// CHECK:       builtin.module attributes {onnx.meta = {{\[\[}}"irkit.state", "{{.*}}next/count{{.*}}"{{\]\]}}
// CHECK-NOT:   state.
// CHECK:       func.func @main(%n: tensor<i64> {onnx.name = "n"}, %p: tensor<i1> {onnx.name = "p"},
// CHECK-SAME:    %count: tensor<i64> {onnx.name = "count", onnx.default = #onnx.tensor<tensor<i64>, [7]>},
// CHECK-SAME:    %scale: tensor<i64> {onnx.name = "scale", onnx.default = #onnx.tensor<tensor<i64>, [2]>})
// CHECK-SAME:    -> (tensor<i64> {onnx.name = "y"}, tensor<i64> {onnx.name = "next/count"})
// CHECK-NEXT:    %none = "onnx.NoValue"() : () -> none
// CHECK-NEXT:    [[LOOP:%.*]] = "onnx.Loop"(%n, %none, %count) ({
// CHECK-NEXT:    ^{{.*}}(%i: tensor<i64>, %go: tensor<i1>, [[CARRIED:%.*]]: tensor<i64>):
// CHECK-NEXT:      [[IF:%.*]] = "onnx.If"(%p) ({
// CHECK-NEXT:        %new = "onnx.Mul"([[CARRIED]], %scale) : (tensor<i64>, tensor<i64>) -> tensor<i64>
// CHECK-NEXT:        "onnx.Yield"(%new) : (tensor<i64>) -> ()
// CHECK-NEXT:      }, {
// CHECK-NEXT:        "onnx.Yield"([[CARRIED]]) : (tensor<i64>) -> ()
// CHECK-NEXT:      }) : (tensor<i1>) -> tensor<i64>
// CHECK-NEXT:      "onnx.Yield"(%go, [[IF]]) : (tensor<i1>, tensor<i64>) -> ()
// CHECK-NEXT:    }) : (tensor<i64>, none, tensor<i64>) -> tensor<i64>
// CHECK-NEXT:    func.return [[LOOP]], [[LOOP]] : tensor<i64>, tensor<i64>
