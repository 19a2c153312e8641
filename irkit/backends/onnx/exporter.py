"""Modules to ONNX models, losslessly: what came in by a file and was not changed goes out as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import AttributeProto
from xdsl.dialects.builtin import ArrayAttr, NoneType, StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, BlockArgument, Operation, OpResult, SSAValue

from irkit import opsets as opset_tables
from irkit.dialects.onnx.classes import OnnxOp, newest, op_class
from irkit.dialects.onnx.protos import attr_to_proto, message_of, sparse_to_proto, tensor_to_proto, type_to_proto
from irkit.dialects.onnx.structural import ForeignOp, Function, Initializer, NoValue, Yield, opsets_of
from irkit.errors import LoweringError, UnsupportedError
from irkit.ir.attributes import text_of, texts_of
from irkit.ir.constants import ConstantData, ProtoAttr, TensorAttr
from irkit.ir.location import where
from irkit.ir.module import DEFAULT, GRAPH, Module, arg_entries
from irkit.ir.names import DECL, DOC, META, NAME, OUTS, REST, name_of
from irkit.ir.op import TensorOp, is_absent, type_string
from irkit.ir.types import UnknownType

__all__ = ["TensorWriter", "export", "targets"]

Proto = Any
TensorWriter = Callable[[ConstantData, str], Proto]
"""Makes the TensorProto of a constant of this name; a saver may put the bytes elsewhere."""


def targets(module: Module, opset: int | Mapping[str, int] | None) -> dict[str, int]:
    """The opset per domain to write: the module's own, but for what is asked.

    Raises:
        LoweringError: for an opset that does not exist.
    """
    asked = {} if opset is None else {"": opset} if isinstance(opset, int) else dict(opset)
    for domain, version in asked.items():
        known = newest(domain)
        if version < 1 or (known is not None and version > known):
            span = "1 or more" if known is None else f"1 to {known}"
            raise LoweringError(f"there is no opset {version} of '{domain or 'ai.onnx'}', expected {span}")
    return {**(module.opsets or {"": 21}), **asked}


def export(
    module: Module,
    opset: int | Mapping[str, int] | None = None,
    *,
    tensor_writer: TensorWriter = tensor_to_proto,
    value_info: str = "declared",
) -> Proto:
    """The module as an ONNX model.

    Args:
        opset: the target of ai.onnx, or targets by domain. By default those that the module came with. What an older
            opset has no form for is written as function bodies or decompositions.
        tensor_writer: makes the TensorProto of each initializer.
        value_info: which intermediate values are declared: ``"declared"`` (those that the source declared), ``"all"``
            whose types are known, or ``"none"``.

    Raises:
        LoweringError: if an op cannot be written at the target; it names every such op, and the lowest opset that can.
        UnsupportedError: if a name is not UTF-8.
    """
    if value_info not in ("declared", "all", "none"):
        raise ValueError(f"value_info is 'declared', 'all' or 'none', not {value_info!r}")
    chosen = targets(module, opset)
    if _needs_lowering(module, chosen):
        module = module.clone()
        opset_tables.lower_module(module, chosen)
        chosen.update({d: v for d, v in module.opsets.items() if d not in chosen})
    try:
        return _Exporter(module, chosen, tensor_writer, value_info).model()
    except UnicodeError as error:
        raise UnsupportedError(f"a name or text is not UTF-8, as those of ONNX have to be: {error}") from None


def _needs_lowering(module: Module, chosen: Mapping[str, int]) -> bool:
    for op in module.op.ops:
        imports = opsets_of(op.properties["opsets"]) if isinstance(op, Function) else chosen
        for inner in op.walk():
            if isinstance(inner, OnnxOp) and not _fits(inner, imports):
                return True
    return False


_FITS: dict[tuple[type[OnnxOp], type[OnnxOp] | None], bool] = {}


def _fits(op: OnnxOp, imports: Mapping[str, int]) -> bool:
    """Whether the op can be written as it stands at these opsets."""
    opset = imports.get(op.domain)
    target = None if opset is None else op_class(op.domain, op.op_type, opset)
    if target is type(op):
        return True
    key = (type(op), target)
    same = _FITS.get(key)
    if same is None:
        same = _FITS[key] = target is not None and opset_tables.is_trivial(target, type(op))
    if not same or target is None:
        return False
    return all(name in target.spec.attributes for name in op.properties) and _types_fit(op, target)


def _types_fit(op: OnnxOp, target: type[OnnxOp]) -> bool:
    """Whether the older form takes the operands' and results' types."""
    spec = target.spec
    if len(op.operands) > spec.max_inputs or len(op.results) > spec.max_outputs:
        return False
    for values, formals in ((op.operands, spec.inputs), (op.results, spec.outputs)):
        for index, value in enumerate(values):
            found = type_string(value.type)
            formal = formals[min(index, len(formals) - 1)]
            if found is not None and found not in spec.variables.get(formal.type, frozenset((formal.type,))):
                return False
    return True


class _Names:
    """Value names: those recorded, kept wherever they are free; new ones for the rest."""

    def __init__(self, module: Module) -> None:
        self.names: dict[SSAValue, str] = {}
        self.recorded: set[str] = set()
        for op in module.op.walk():
            attr = op.attributes.get(OUTS)
            if attr is not None:
                self.recorded.update(texts_of(attr))
            ins = op.attributes.get("onnx.ins")
            if ins is not None:
                self.recorded.update(texts_of(ins))
        self.recorded.update(module.input_names, module.output_names)
        self.counters: dict[str, int] = {}

    def fresh(self, base: str) -> str:
        """A name that is used nowhere."""
        count = self.counters.get(base, 0)
        name = base if count == 0 else f"{base}_{count}"
        while name in self.recorded:
            count += 1
            name = f"{base}_{count}"
        self.counters[base] = count + 1
        self.recorded.add(name)
        return name

    def assign(self, value: SSAValue, wanted: str, base: str, taken: set[str]) -> str:
        """The name of a value: the wanted one if no visible value has it."""
        found = self.names.get(value)
        if found is None:
            found = wanted if wanted and wanted not in taken else self.fresh(wanted or base)
            self.names[value] = found
        taken.add(found)
        return found


class _Exporter:
    def __init__(self, module: Module, chosen: Mapping[str, int], tensor_writer: TensorWriter, value_info: str) -> None:
        self.module = module
        self.opsets = dict(chosen)
        self.tensor = tensor_writer
        self.value_info = value_info
        self.used_domains: set[str] = set()
        self.values = _Names(module)
        self.outputs = set(module.returned)

    def model(self) -> Proto:
        module, op = self.module, self.module.op
        model = onnx.ModelProto()
        model.ir_version = self._ir_version()
        for field in ("producer_name", "producer_version", "domain"):
            attr = op.attributes.get(f"onnx.{field}")
            if attr is not None:
                setattr(model, field, text_of(attr))
        version = op.attributes.get("onnx.model_version")
        if version is not None:
            model.model_version = cast(Any, version).value.data
        _write_doc_and_metadata(op.attributes, model)
        _merge_rest(op.attributes, model)
        self._main(model.graph, module.func, model.ir_version)
        for inner in op.ops:
            if isinstance(inner, Function):
                self._function(model.functions.add(), inner)
        imports = {**self.opsets, **{d: 1 for d in self.used_domains if d not in self.opsets}}
        spelled = op.attributes.get("onnx.default_domain")
        for domain, opset in imports.items():
            default = text_of(spelled) if spelled is not None and domain == "" else domain
            model.opset_import.add(domain=default, version=opset)
        return model

    def _ir_version(self) -> int:
        """The module's own, raised where the target's opset needs a newer file format than the source's did."""
        own = self.module.ir_version
        if self.opsets == self.module.opsets:
            return own
        ids = [onnx.OperatorSetIdProto(domain=d, version=v) for d, v in self.opsets.items()]
        try:
            return max(own, onnx.helper.find_min_ir_version_for(ids, ignore_unknown=True))
        except ValueError:
            return own

    # Graphs

    def _main(self, graph: Proto, func: FuncOp, ir_version: int) -> None:
        graph.SetInParent()
        name = func.attributes.get(GRAPH)
        if name is not None:
            graph.name = text_of(name)
        module, block = self.module, func.body.block
        taken: set[str] = set(module.input_names)
        args = arg_entries(func.arg_attrs, len(block.args))
        for arg, arg_name, entry in zip(block.args, module.input_names, args, strict=True):
            self.values.names[arg] = arg_name
            _write_info(graph.input.add(), arg_name, arg.type, entry.get(DECL))
            default = entry.get(DEFAULT)
            if isinstance(default, TensorAttr):
                graph.initializer.append(self.tensor(default.data, arg_name))
        pending = self._name_outputs(module.returned, module.output_names, taken)
        self._nodes(graph, block, taken)
        for value, out_name in pending:
            graph.node.add(op_type="Identity", input=[self.values.names[value]], output=[out_name])
        results = arg_entries(func.res_attrs, len(module.returned))
        for value, out_name, entry in zip(module.returned, module.output_names, results, strict=True):
            _write_info(graph.output.add(), out_name, value.type, entry.get(DECL))
        _write_doc_and_metadata(func.attributes, graph)
        listed = _merge_rest(func.attributes, graph)
        if ir_version < 4:
            self._list_initializers(graph, func.attributes.get("onnx.ins"), listed)

    @staticmethod
    def _list_initializers(graph: Proto, order: Attribute | None, listed: Mapping[str, Proto]) -> None:
        """Below IR version 4 every initializer is also an input."""
        infos = {i.name: i for i in graph.input}
        for tensor in graph.initializer:
            if tensor.name not in infos:
                info = infos[tensor.name] = onnx.ValueInfoProto()
                if tensor.name in listed:
                    info.CopyFrom(listed[tensor.name])
                else:
                    shape = list(tensor.dims)
                    info.CopyFrom(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, shape))
        names = texts_of(order) if order is not None else ()
        ordered = [n for n in names if n in infos]
        ordered += [n for n in infos if n not in set(ordered)]
        del graph.input[:]
        graph.input.extend(infos[n] for n in ordered)

    def _name_outputs(
        self, values: Sequence[SSAValue], names: Sequence[str], taken: set[str]
    ) -> list[tuple[SSAValue, str]]:
        """Gives results the names of the outputs that they are; returns the outputs that need an Identity."""
        pending: list[tuple[SSAValue, str]] = []
        known = self.values.names
        # A value that is several outputs keeps the name it had in the file.
        for value, name in zip(values, names, strict=True):
            if value not in known and name_of(value) == name:
                known[value] = name
        for value, name in zip(values, names, strict=True):
            keeps = isinstance(value, BlockArgument) or isinstance(value.owner, Initializer)
            if value not in known and not keeps:
                known[value] = name
            elif value not in known and isinstance(value, OpResult):
                known[value] = self.values.assign(value, name_of(value), name, taken)
            if known.get(value) != name:
                pending.append((value, name))
        taken.update(names)
        return pending

    def _nodes(self, graph: Proto, block: Block, taken: set[str]) -> None:
        """Adds the ops of a block to a graph (or function)."""
        in_function = not isinstance(graph, onnx.GraphProto)
        for op in block.ops:
            if isinstance(op, NoValue | Yield | ReturnOp):
                continue
            recorded = op.attributes.get(OUTS)
            wanted = texts_of(recorded) if recorded is not None else ()
            names: list[str] = []
            base = type(op).__name__.lower()
            for index, result in enumerate(op.results):
                name = wanted[index] if index < len(wanted) else None
                if name == "" and result.first_use is None and result not in self.values.names:
                    names.append("")
                else:
                    names.append(self.values.assign(result, name or "", base, taken))
            if isinstance(op, Initializer) and not in_function:
                self._initializer(graph, op, names[0])
            else:
                self._node(graph.node.add(), op, names, taken)
            if not in_function and self.value_info != "none":
                self._value_info(graph, op, names)

    def _worth_declaring(self, op: Operation, result: SSAValue) -> bool:
        return not (result in self.outputs or isinstance(op, Initializer) or isinstance(result.type, UnknownType))

    def _value_info(self, graph: Proto, op: Operation, names: Sequence[str]) -> None:
        declared = op.attributes.get(DECL)
        entries = cast("ArrayAttr[Attribute]", declared).data if declared is not None else ()
        for index, (result, name) in enumerate(zip(op.results, names, strict=True)):
            entry = entries[index] if index < len(entries) else None
            if entry is not None and not isinstance(entry, NoneType):
                _write_info(graph.value_info.add(), name, result.type, entry)
            elif self.value_info == "all" and name and self._worth_declaring(op, result):
                _write_info(graph.value_info.add(), name, result.type, None)

    def _initializer(self, graph: Proto, op: Initializer, name: str) -> None:
        if isinstance(op.value, TensorAttr):
            tensor = self.tensor(op.value.data, name)
            graph.initializer.append(tensor)
            written = graph.initializer[-1]
        else:
            graph.sparse_initializer.append(sparse_to_proto(op.value, name))
            written = graph.sparse_initializer[-1].values
        _write_doc_and_metadata(op.attributes, written)

    def _node(self, node: Proto, op: Operation, outputs: Sequence[str], taken: set[str]) -> None:
        node.input.extend("" if is_absent(v) else self.values.names[v] for v in op.operands)
        node.output.extend(outputs)
        if isinstance(op, OnnxOp):
            node.op_type, node.domain = op.op_type, op.domain
            if not node.domain:
                node.ClearField("domain")
            attributes = op.properties
            graphs: Iterable[tuple[str, int]] = [(name, -1) for name in op.spec.graphs]
            self.opsets.setdefault(op.domain, op.since)
        elif isinstance(op, Initializer):
            node.op_type = "Constant"
            attributes, graphs = op.properties, ()
        elif isinstance(op, ForeignOp):
            node.op_type, node.domain = op.op_type, op.domain
            if op.overload:
                node.overload = op.overload
            attributes, graphs = op.attrs, op.graphs
            self.used_domains.add(op.domain)
        elif isinstance(op, TensorOp):
            node.op_type, node.domain = op.spec.op_type, op.spec.domain
            attributes, graphs = op.properties, ()
            self.used_domains.add(op.spec.domain)
        else:
            raise UnsupportedError(
                f"{op.name} has no form in ONNX",
                op=op.name,
                where=where(op),
                hint="a pass that lowers its dialect must run before export (lift-state for the state dialect)",
            )
        node.attribute.extend(attr_to_proto(name, attr) for name, attr in attributes.items())
        for (name, index), region in zip(graphs, op.regions, strict=True):
            if region.blocks:
                self._graph_attribute(node, name, index, region.block, taken)
        name = op.attributes.get(NAME)
        if name is not None:
            node.name = text_of(name)
        _write_doc_and_metadata(op.attributes, node)
        domain = op.attributes.get("onnx.domain")
        if isinstance(domain, StringAttr):
            node.domain = domain.data
        _merge_rest(op.attributes, node)

    def _graph_attribute(self, node: Proto, name: str, index: int, block: Block, taken: set[str]) -> None:
        attribute = None
        if index > 0:
            attribute = next(a for a in node.attribute if a.name == name)
        if attribute is None:
            attribute = node.attribute.add(name=name, type=AttributeProto.GRAPH if index < 0 else AttributeProto.GRAPHS)
        graph = attribute.g if index < 0 else attribute.graphs.add()
        self._subgraph(graph, block, set(taken))

    def _subgraph(self, graph: Proto, block: Block, taken: set[str]) -> None:
        end = cast(Operation, block.last_op)
        label = end.attributes.get(GRAPH)
        graph.name = text_of(label) if label is not None else "graph"
        ins = end.attributes.get("onnx.ins")
        in_names = texts_of(ins) if ins is not None else ()
        declared = end.attributes.get("onnx.ins_decl")
        entries = cast("ArrayAttr[Attribute]", declared).data if declared is not None else ()
        for index, arg in enumerate(block.args):
            wanted = in_names[index] if index < len(in_names) else ""
            name = self.values.assign(arg, wanted, f"{graph.name}_in", taken)
            _write_info(graph.input.add(), name, arg.type, entries[index] if index < len(entries) else None)
        outs = end.attributes.get(OUTS)
        out_names = texts_of(outs) if outs is not None else ()
        local, pending, finals = set(_local_values(block)), [], []
        for index, value in enumerate(end.operands):
            wanted = out_names[index] if index < len(out_names) else ""
            finals.append(self._subgraph_output(value, wanted, local, taken, pending))
        self._nodes(graph, block, taken)
        for value, name in pending:
            graph.node.add(op_type="Identity", input=[self.values.names[value]], output=[name])
        declared = end.attributes.get(DECL)
        entries = cast("ArrayAttr[Attribute]", declared).data if declared is not None else ()
        for index, (value, name) in enumerate(zip(end.operands, finals, strict=True)):
            _write_info(graph.output.add(), name, value.type, entries[index] if index < len(entries) else None)
        _write_doc_and_metadata(end.attributes, graph)
        _merge_rest(end.attributes, graph)

    def _subgraph_output(
        self, value: SSAValue, wanted: str, local: set[SSAValue], taken: set[str], pending: list[tuple[SSAValue, str]]
    ) -> str:
        """The name of a graph's output. One that the graph doesn't make itself is handed on by an Identity, since
        runtimes refuse outer values, inputs and initializers as outputs, unless the file had it so."""
        known = self.values.names.get(value)
        if known is not None and (known == wanted):
            return known
        makes = isinstance(value, OpResult) and value in local and not isinstance(value.owner, Initializer)
        if known is None and makes:
            return self.values.assign(value, wanted or name_of(value), "out", taken)
        if known is None:
            if name_of(value) == wanted and wanted:
                return self.values.assign(value, wanted, "out", taken)
            self.values.assign(value, name_of(value), "value", taken)
        name = wanted if wanted and wanted not in taken else self.values.fresh(wanted or "out")
        taken.add(name)
        pending.append((value, name))
        return name

    # Functions

    def _function(self, function: Proto, op: Function) -> None:
        domain, function.name, overload = op.key
        function.domain = domain
        if overload:
            function.overload = overload
        block = op.body
        taken: set[str] = set()
        for arg, arg_name in zip(block.args, op.input_names, strict=True):
            self.values.names[arg] = arg_name
            taken.add(arg_name)
        function.input.extend(op.input_names)
        function.attribute.extend(op.attribute_names)
        function.attribute_proto.extend(attr_to_proto(key, attr) for key, attr in op.defaults.items())
        end = cast(Operation, block.last_op)
        outer, self.opsets = self.opsets, opsets_of(op.properties["opsets"])
        pending = self._name_outputs(tuple(end.operands), op.output_names, taken)
        self._nodes(function, block, taken)
        for value, out_name in pending:
            function.node.add(op_type="Identity", input=[self.values.names[value]], output=[out_name])
        function.output.extend(op.output_names)
        for import_domain, version in self.opsets.items():
            function.opset_import.add(domain=import_domain, version=version)
        self.opsets = outer
        _write_doc_and_metadata(op.attributes, function)
        _merge_rest(op.attributes, function)


def _local_values(block: Block) -> Iterable[SSAValue]:
    yield from block.args
    for op in block.ops:
        yield from op.results


def _write_info(info: Proto, name: str, value_type: Attribute, declared: Attribute | None) -> None:
    """Fills a ValueInfoProto: as declared in the source where that says more or else than the type."""
    if isinstance(declared, ProtoAttr):
        info.CopyFrom(message_of(declared))
        info.name = name
        return
    info.name = name
    if isinstance(declared, NoneType):
        return
    shown = value_type if declared is None or isinstance(declared, UnitAttr) else declared
    if not isinstance(shown, UnknownType):
        info.type.CopyFrom(type_to_proto(shown))


def _write_doc_and_metadata(attributes: Mapping[str, Attribute], proto: Proto) -> None:
    doc = attributes.get(DOC)
    if doc is not None:
        proto.doc_string = text_of(doc)
    meta = attributes.get(META)
    if meta is not None:
        for pair in cast("ArrayAttr[Attribute]", meta).data:
            key, value = texts_of(pair)
            proto.metadata_props.add(key=key, value=value)


def _merge_rest(attributes: Mapping[str, Attribute], proto: Proto) -> dict[str, Proto]:
    """Adds what was kept verbatim; returns the kept declarations of hidden inputs by name."""
    rest = attributes.get(REST)
    if not isinstance(rest, ProtoAttr):
        return {}
    message = message_of(rest)
    if isinstance(message, onnx.GraphProto):
        listed = {i.name: i for i in message.input}
        del message.input[:]
        proto.MergeFrom(message)
        return listed
    if isinstance(message, onnx.NodeProto):
        docs = {attribute.name: attribute.doc_string for attribute in message.attribute}
        del message.attribute[:]
        for attribute in proto.attribute:
            if attribute.name in docs:
                attribute.doc_string = docs[attribute.name]
    proto.MergeFrom(message)
    return {}
