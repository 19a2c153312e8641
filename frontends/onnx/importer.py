"""ONNX models to modules, losslessly.

Every value gets the type that inference gives it; what the file declares in ``value_info`` is kept beside it as a
claim. Functions stay untyped, since their callers decide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import onnx
from onnx import AttributeProto
from xdsl.dialects.builtin import ArrayAttr, LocationAttr, ModuleOp, NoneType, StringAttr, UnitAttr
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from irkit import opsets
from irkit.dialects import context
from irkit.dialects.onnx.classes import CLASSES, OnnxOp, canonical_domain, newest, op_class
from irkit.dialects.onnx.infer import infer_types
from irkit.dialects.onnx.protos import (
    ExternalReader,
    attr_from_proto,
    has_denotation,
    proto_attr,
    sparse_from_proto,
    tensor_from_proto,
    text_attr,
    text_attrs,
    text_of_field,
    type_from_proto,
)
from irkit.dialects.onnx.structural import Call, Custom, ForeignOp, Function, Initializer, Yield, absent
from irkit.errors import InferenceError, IrkitError, LoadError, VerifyError
from irkit.frontends.onnx.order import FunctionKey, Unsorted, check_recursion, function_key, sorted_nodes
from irkit.ir.attributes import int_attr
from irkit.ir.constants import SparseAttr, TensorAttr
from irkit.ir.location import describe, node_location
from irkit.ir.memory import paused_gc
from irkit.ir.module import DEFAULT, GRAPH, Module, arg_attrs
from irkit.ir.names import DECL, DOC, META, NAME, OUTS, REST, hint
from irkit.ir.types import UnknownType, unknown

__all__ = ["import_model"]

MAX_DEPTH = 64
"""How deeply graphs may be nested. Protobuf itself reads back no more than 31 levels."""
OPSETS_SINCE = 3
"""The IR version from which on a model says which opsets it imports."""

Proto = Any

NOT_DECLARED = NoneType()
AS_INFERRED = UnitAttr()


def import_model(
    model: Proto, *, file: str = "", external: ExternalReader | None = None, upgrade: bool = True
) -> Module:
    """The module of a ModelProto.

    Args:
        file: the file's name, for locations.
        external: reads tensors whose data stand in other files.
        upgrade: bring ops to their current form where that is one to one; else keep every op as it came.

    Raises:
        LoadError: if the model is malformed, saying where.
    """
    with paused_gc():
        return _Importer(model, file, external, upgrade).module()


class _Importer:
    def __init__(self, model: Proto, file: str, external: ExternalReader | None, upgrade: bool) -> None:
        self.model = model
        self.file = file or "model"
        self.external = external
        self.upgrade = upgrade
        self.opsets = _opsets(model.opset_import, "the model")
        if not model.opset_import and model.ir_version < OPSETS_SINCE:
            self.opsets = {"": 1}
        self.functions: dict[FunctionKey, Proto] = {}
        self.references: frozenset[str] | None = None
        self.old: list[OnnxOp] = []
        self.has_calls = False
        self.depth = 0

    def module(self) -> Module:
        model, ctx = self.model, context()
        if not model.HasField("graph"):
            raise LoadError("the model has no graph")
        if not 1 <= model.ir_version <= onnx.IR_VERSION:
            raise LoadError(
                f"the model is of IR version {model.ir_version}, expected 1 to {onnx.IR_VERSION}",
                hint="a newer release of onnx may know it" if model.ir_version > 0 else "the file is damaged",
            )
        for function in model.functions:
            key = function_key(function)
            if not key[1]:
                raise LoadError(f"a function of domain '{key[0]}' has no name")
            if key in self.functions:
                raise LoadError(f"function '{key[0]}.{key[1]}' is defined twice")
            self.functions[key] = function
        check_recursion(model.functions)
        op = ModuleOp([])
        module = Module(op, ctx)
        block = op.body.block
        block.add_op(self._main(model.graph))
        symbols: set[str] = {"main"}
        for function in model.functions:
            block.add_op(self._function(function, symbols))
        module.ir_version = model.ir_version
        module.opsets = self.opsets
        self._model_attributes(op)
        if self.old:
            for old in self.old:
                _check(old)
                opsets.upgrade_op(old, module.ctx)
            opsets.sync_signature(module.func)
        try:
            module.verify()
        except VerifyError as error:
            raise LoadError(error.message, op=error.op, where=error.where, hint=error.hint) from None
        return module

    def _model_attributes(self, op: ModuleOp) -> None:
        model = self.model
        for field in ("producer_name", "producer_version", "domain"):
            if model.HasField(field):
                op.attributes[f"onnx.{field}"] = text_attr(getattr(model, field))
        if model.HasField("model_version"):
            op.attributes["onnx.model_version"] = int_attr(model.model_version)
        if any(entry.domain == "ai.onnx" for entry in model.opset_import):
            op.attributes["onnx.default_domain"] = StringAttr("ai.onnx")
        _doc_and_metadata(op.attributes, model)
        rest = onnx.ModelProto()
        rest.training_info.extend(model.training_info)
        rest.configuration.extend(model.configuration)
        if rest.ByteSize():
            op.attributes[REST] = proto_attr(rest)

    # Graphs

    def _main(self, graph: Proto) -> FuncOp:
        initial = {t.name: t for t in graph.initializer}
        hidden: set[str] = set()
        if self.model.ir_version < 4:
            hidden = initial.keys() & {i.name for i in graph.input}
            inputs = [i for i in graph.input if i.name not in hidden]
        else:
            inputs = list(graph.input)
        names = [i.name for i in inputs]
        block, scope, values = self._build(graph, inputs, {}, self.opsets)
        args: list[dict[str, Attribute]] = []
        for info, _ in zip(inputs, block.args, strict=True):
            entry: dict[str, Attribute] = {NAME: text_attr(info.name)}
            if _has_extras(info):
                entry[DECL] = proto_attr(info)
            if info.name in initial and info.name not in hidden:
                entry[DEFAULT] = TensorAttr.of(self._tensor(initial[info.name]))
            args.append(entry)
        results: list[dict[str, Attribute]] = []
        for info, value in zip(graph.output, values, strict=True):
            entry = {NAME: text_attr(info.name)}
            declared = _declared(info, value.type)
            if not isinstance(declared, UnitAttr):
                entry[DECL] = declared
            results.append(entry)
        block.add_op(ReturnOp(*values))
        func = FuncOp(
            "main",
            ([a.type for a in block.args], [v.type for v in values]),
            Region(block),
            arg_attrs=arg_attrs(args),
            res_attrs=arg_attrs(results),
        )
        func.attributes[GRAPH] = text_attr(graph.name)
        if hidden and [i.name for i in graph.input] != names + [t.name for t in graph.initializer]:
            func.attributes["onnx.ins"] = text_attrs(i.name for i in graph.input)
        _doc_and_metadata(func.attributes, graph)
        self._rest(func.attributes, graph, scope, hidden)
        return func

    def subgraph(self, graph: Proto, outer: Mapping[str, SSAValue], imports: Mapping[str, int], types: Any) -> Region:
        """A region for a graph attribute; ``types`` are those of its inputs, as far as the op's operands tell."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LoadError(f"graphs are nested more than {MAX_DEPTH} deep")
        try:
            block, scope, values = self._build(graph, list(graph.input), outer, imports, types)
        finally:
            self.depth -= 1
        end = Yield.create(operands=values)
        end.attributes[GRAPH] = text_attr(graph.name)
        if graph.input:
            end.attributes["onnx.ins"] = text_attrs(i.name for i in graph.input)
            end.attributes["onnx.ins_decl"] = _declarations(graph.input, [a.type for a in block.args])
        end.attributes[OUTS] = text_attrs(o.name for o in graph.output)
        if graph.output:
            end.attributes[DECL] = _declarations(graph.output, [v.type for v in values])
        _doc_and_metadata(end.attributes, graph)
        self._rest(end.attributes, graph, scope, set())
        block.add_op(end)
        return Region(block)

    def _rest(
        self, attributes: dict[str, Attribute], graph: Proto, scope: Mapping[str, SSAValue], hidden: set[str]
    ) -> None:
        """Keeps what the IR does not model: annotations, and declarations of values that no op of the graph makes."""
        rest = onnx.GraphProto()
        rest.quantization_annotation.extend(graph.quantization_annotation)
        made = {name for name, value in scope.items() if isinstance(value.owner, Operation)}
        rest.value_info.extend(info for info in graph.value_info if info.name not in made)
        rest.input.extend(i for i in graph.input if i.name in hidden and (_has_extras(i) or self._differs(i, scope)))
        if rest.ByteSize():
            attributes[REST] = proto_attr(rest)

    @staticmethod
    def _differs(info: Proto, scope: Mapping[str, SSAValue]) -> bool:
        return info.name in scope and type_from_proto(info.type) != scope[info.name].type

    def _build(
        self,
        graph: Proto,
        inputs: Sequence[Proto],
        outer: Mapping[str, SSAValue],
        imports: Mapping[str, int],
        types: Sequence[Attribute] | None = None,
    ) -> tuple[Block, dict[str, SSAValue], list[SSAValue]]:
        """The block of a graph, the values by name that it defines, and its outputs."""
        mark = len(self.old)
        try:
            return self._build_in_order(graph, graph.node, inputs, outer, imports, types)
        except Unsorted:
            del self.old[mark:]
            ordered = sorted_nodes(graph, set(outer), nested=self.depth > 0)
            return self._build_in_order(graph, ordered, inputs, outer, imports, types)

    def _build_in_order(
        self,
        graph: Proto,
        nodes: Sequence[Proto],
        inputs: Sequence[Proto],
        outer: Mapping[str, SSAValue],
        imports: Mapping[str, int],
        types: Sequence[Attribute] | None,
    ) -> tuple[Block, dict[str, SSAValue], list[SSAValue]]:
        declared = {info.name: info for info in graph.value_info}
        arg_types = [type_from_proto(i.type) for i in inputs]
        if types is not None and len(types) == len(arg_types):
            arg_types = [t if not isinstance(t, UnknownType) else d for t, d in zip(types, arg_types, strict=True)]
        block = Block(arg_types=arg_types)
        scope: dict[str, SSAValue] = {}
        for info, arg in zip(inputs, block.args, strict=True):
            if info.name in scope:
                raise LoadError(f"two inputs of graph '{graph.name}' have the name '{info.name}'")
            scope[info.name] = arg
            arg.name_hint = hint(info.name)
        builder = _GraphBuilder(self, block, scope, outer, imports, declared)
        initial: set[str] = set()
        for proto in graph.initializer:
            if not proto.name or proto.name in initial:
                what = f"two initializers have the name '{proto.name}'" if proto.name else "an initializer has no name"
                raise LoadError(f"{what} in graph '{graph.name}'")
            initial.add(proto.name)
            if proto.name not in scope:
                builder.initializer(proto.name, TensorAttr.of(self._tensor(proto)), proto)
            elif types is not None:
                raise LoadError(f"initializer '{proto.name}' of the subgraph '{graph.name}' is one of its inputs, too")
        for proto in graph.sparse_initializer:
            builder.initializer(proto.values.name, sparse_from_proto(proto, self.external), proto.values)
        for index, node in enumerate(nodes):
            builder.node(node, index)
        missing = [o.name for o in graph.output if builder.find(o.name) is None]
        if missing:
            raise LoadError(f"output '{missing[0]}' of graph '{graph.name}' is made by no node")
        return block, scope, [cast(SSAValue, builder.find(o.name)) for o in graph.output]

    def _tensor(self, proto: Proto) -> Any:
        return tensor_from_proto(proto, self.external)

    # Functions

    def _function(self, proto: Proto, symbols: set[str]) -> Function:
        key = function_key(proto)
        imports = _opsets(proto.opset_import, f"function '{proto.name}'")
        self.references = frozenset(proto.attribute) | {a.name for a in proto.attribute_proto}
        graph = onnx.GraphProto(name=proto.name, node=proto.node)
        graph.output.extend(onnx.ValueInfoProto(name=text_of_field(name)) for name in proto.output)
        inputs = [onnx.ValueInfoProto(name=text_of_field(name)) for name in proto.input]
        block, _, values = self._build(graph, inputs, {}, imports)
        end = Yield.create(operands=values)
        block.add_op(end)
        self.references = None
        function = Function.of(
            key,
            _symbol(key, symbols),
            list(proto.input),
            list(proto.output),
            list(proto.attribute),
            {a.name: attr_from_proto(a, self.external) for a in proto.attribute_proto},
            imports,
            Region(block),
        )
        _doc_and_metadata(function.attributes, proto)
        rest = onnx.FunctionProto()
        rest.value_info.extend(proto.value_info)
        if rest.ByteSize():
            function.attributes[REST] = proto_attr(rest)
        return function


class _GraphBuilder:
    """Adds the nodes of one graph to its block."""

    def __init__(
        self,
        importer: _Importer,
        block: Block,
        scope: dict[str, SSAValue],
        outer: Mapping[str, SSAValue],
        imports: Mapping[str, int],
        declared: Mapping[str, Proto],
    ) -> None:
        self.importer = importer
        self.block = block
        self.scope = scope
        self.outer = outer
        self.imports = imports
        self.declared = declared
        self.classes: dict[tuple[str, str, str], tuple[type[Operation], type[OnnxOp] | None]] = {}

    def find(self, name: str) -> SSAValue | None:
        """The value of this name, in this graph or one around it."""
        found = self.scope.get(name)
        return self.outer.get(name) if found is None else found

    def initializer(self, name: str, value: TensorAttr | SparseAttr, proto: Proto) -> None:
        """Adds an initializer."""
        op = Initializer.of(value)
        _doc_and_metadata(op.attributes, proto)
        self._add(op, [name])

    def node(self, node: Proto, index: int) -> None:
        """Adds a node.

        Raises:
            LoadError: saying which node, and what is wrong with it.
            Unsorted: if an input is made further on.
        """
        operands: list[SSAValue] = []
        for name in node.input:
            value = absent(self.block) if name == "" else self.find(name)
            if value is None:
                raise Unsorted
            operands.append(value)
        location = node_location(self.importer.file, node.name, index)
        try:
            op = self._make(node, operands, location)
        except IrkitError as error:
            if error.where:
                raise
            name = error.op or f"onnx.{node.op_type}"
            raise LoadError(error.message, op=name, where=describe(location), hint=error.hint) from None
        attributes = op.attributes
        if node.HasField("name"):
            attributes[NAME] = text_attr(node.name)
        if node.doc_string or node.metadata_props:
            _doc_and_metadata(attributes, node)
        if node.domain == "ai.onnx":
            attributes["onnx.domain"] = StringAttr("ai.onnx")
        documented = [proto for proto in node.attribute if proto.doc_string]
        if documented or node.device_configurations:
            rest = onnx.NodeProto(device_configurations=node.device_configurations)
            rest.attribute.extend(AttributeProto(name=a.name, doc_string=a.doc_string) for a in documented)
            attributes[REST] = proto_attr(rest)
        self._add(op, node.output)
        if isinstance(op, OnnxOp) and self.importer.upgrade and not op.current:
            self.importer.old.append(op)

    def _add(self, op: Operation, names: Sequence[str]) -> None:
        self.block.add_op(op)
        op.attributes[OUTS] = text_attrs(names)
        declared: list[Attribute] = []
        for result, name in zip(op.results, names, strict=True):
            if not name:
                declared.append(NOT_DECLARED)
                continue
            if name in self.scope:
                raise LoadError(f"two values have the name '{name}'", op=op.name)
            self.scope[name] = result
            result.name_hint = hint(name)
            info = self.declared.get(name)
            declared.append(NOT_DECLARED if info is None else _declared(info, result.type))
        if any(not isinstance(d, NoneType) for d in declared):
            op.attributes[DECL] = ArrayAttr(declared)

    def _make(self, node: Proto, operands: Sequence[SSAValue], location: LocationAttr) -> Operation:
        cls, older = self._class(node)
        if issubclass(cls, ForeignOp):
            foreign = self._foreign(cls, node, operands)
            foreign.location = location
            return foreign
        onnx_class = cast("type[OnnxOp]", cls)
        if older is not None:
            _check_older(node, older)
        properties: dict[str, Attribute] = {}
        graphs: dict[str, Proto] = {}
        for proto in node.attribute:
            if proto.name in properties or proto.name in graphs:
                raise LoadError(f"the attribute '{proto.name}' is given twice")
            if proto.type == AttributeProto.GRAPH and not proto.ref_attr_name:
                graphs[proto.name] = proto.g
            else:
                properties[proto.name] = self._attribute(proto)
        spec_graphs = onnx_class.spec.graphs
        for name in graphs:
            if name not in spec_graphs:
                raise LoadError(f"it has no graph attribute '{name}'")
        regions = [self._region(onnx_class, g, graphs.get(g), operands, properties) for g in spec_graphs]
        n_out = len(node.output)
        try:
            types = infer_types(onnx_class, operands, properties, regions, n_out, node if not graphs else None)
        except InferenceError:
            # What does not fit is found again, and reported, by the infer-shapes pass and by a run.
            types = [unknown] * n_out
        except Exception:
            # Rules may take for granted what the schema demands, which is only verified once there is an op.
            op = onnx_class.create(
                operands=operands, result_types=[unknown] * n_out, properties=properties, regions=regions
            )
            _check(op)
            raise
        return onnx_class.create(
            operands=operands, result_types=types, properties=properties, regions=regions, location=location
        )

    def _attribute(self, proto: Proto) -> Attribute:
        if proto.ref_attr_name:
            declared = self.importer.references
            if declared is None:
                raise LoadError(f"the attribute '{proto.name}' refers to one of a function, but stands in none")
            if proto.ref_attr_name not in declared:
                raise LoadError(
                    f"attribute '{proto.name}' refers to '{proto.ref_attr_name}', which its function does not declare"
                )
        return attr_from_proto(proto, self.importer.external)

    def _check_call(self, node: Proto) -> None:
        function = self.importer.functions[canonical_domain(node.domain), node.op_type, node.overload]
        for given, formal, what in ((node.input, function.input, "inputs"), (node.output, function.output, "outputs")):
            if len(given) > len(formal):
                raise LoadError(
                    f"it calls the function '{node.op_type}' with {len(given)} {what}, which has {len(formal)}"
                )

    def _region(
        self,
        cls: type[OnnxOp],
        name: str,
        graph: Proto | None,
        operands: Sequence[SSAValue],
        properties: Mapping[str, Attribute],
    ) -> Region:
        if graph is None:
            return Region()
        try:
            types = cls.body_types(name, operands, properties, len(graph.input))
        except (InferenceError, KeyError, ValueError):
            types = None
        visible = {**self.outer, **self.scope}
        importer = self.importer
        before = None
        while True:
            mark = len(importer.old)
            region = importer.subgraph(graph, visible, self.imports, types)
            types, args = cls.widened(region, operands), [arg.type for arg in region.block.args]
            # What the graph declares may win over what is asked for: then asking again changes nothing.
            if types is None or args == before:
                return region
            before = args
            region.drop_all_references()
            del importer.old[mark:]

    def _foreign(self, cls: type[ForeignOp], node: Proto, operands: Sequence[SSAValue]) -> ForeignOp:
        attrs: dict[str, Attribute] = {}
        graphs: list[tuple[str, int]] = []
        regions: list[Region] = []
        visible = {**self.outer, **self.scope}
        if cls is Call:
            self._check_call(node)
        for proto in node.attribute:
            if proto.ref_attr_name or proto.type not in (AttributeProto.GRAPH, AttributeProto.GRAPHS):
                attrs[text_of_field(proto.name)] = self._attribute(proto)
                continue
            single = proto.type == AttributeProto.GRAPH
            for index, graph in enumerate([proto.g] if single else proto.graphs):
                graphs.append((text_of_field(proto.name), -1 if single else index))
                regions.append(self.importer.subgraph(graph, visible, self.imports, None))
        self.importer.has_calls |= cls is Call
        return cls.of(
            canonical_domain(node.domain),
            node.op_type,
            operands,
            [unknown] * len(node.output),
            attrs,
            overload=node.overload,
            graphs=graphs,
            regions=regions,
        )

    def _class(self, node: Proto) -> tuple[type[Operation], type[OnnxOp] | None]:
        """The class of a node; and the older form that it has to fit, where that class is a newer one."""
        key = (node.domain, node.op_type, node.overload)
        found = self.classes.get(key)
        if found is None:
            found = self.classes[key] = self._find_class(canonical_domain(node.domain), node.op_type, node.overload)
        return found

    def _find_class(self, domain: str, op_type: str, overload: str) -> tuple[type[Operation], type[OnnxOp] | None]:
        for part in (domain, op_type, overload):
            text_of_field(part)
        functions = self.importer.functions
        if (domain, op_type, overload) in functions:
            return Call, None
        opset = self.imports.get(domain)
        known = CLASSES.get((domain, op_type))
        if opset is None:
            raise LoadError(f"it is of domain '{domain or 'ai.onnx'}', of which the file imports no opset")
        if known is None:
            if domain in ("", "ai.onnx.ml"):
                raise LoadError(f"there is no op '{op_type}' in {domain or 'ai.onnx'}, and no function of that name")
            # onnxruntime's own ops may stand beside functions that share their domain.
            if any(key[0] == domain for key in functions) and not domain.startswith("com.microsoft"):
                raise LoadError(f"the file has functions of domain '{domain}', but none named '{op_type}'")
            return Custom, None
        found = op_class(domain, op_type, opset)
        if found is None:
            raise LoadError(
                f"'{op_type}' does not exist at opset {opset}, it came with {min(known)}",
                hint="the file imports too old an opset, or the node was made for a newer one",
            )
        newest_form = known[max(known)]
        if found is not newest_form and self.importer.upgrade and opsets.is_trivial(found, newest_form):
            return newest_form, found
        return found, None


# Helpers


def _check(op: OnnxOp) -> None:
    """Refuses an op that does not fit its schema.

    Raises:
        LoadError: saying where it stands, as far as that is known, and what is wrong.
    """
    try:
        op.verify_()
    except VerifyException as error:
        raise LoadError(str(error), op=op.name, where=describe(op.location)) from None


def _check_older(node: Proto, older: type[OnnxOp]) -> None:
    """Refuses what only a later form of an op has.

    Raises:
        LoadError: saying what it is.
    """
    spec = older.spec
    for proto in node.attribute:
        if proto.name not in spec.attributes and proto.name not in spec.graphs:
            raise LoadError(f"it has no attribute '{proto.name}' at opset {older.since}, whose form the file asks for")
    for given, most, what in ((node.input, spec.max_inputs, "inputs"), (node.output, spec.max_outputs, "outputs")):
        if len(given) > most:
            raise LoadError(f"it has {len(given)} {what}, but takes at most {most} in the form of opset {older.since}")


def _opsets(imports: Any, what: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for entry in imports:
        domain = canonical_domain(text_of_field(entry.domain))
        if entry.version < 1:
            raise LoadError(
                f"{what} imports opset {entry.version} of '{domain or 'ai.onnx'}'", hint="opsets start at 1"
            )
        if found.get(domain, entry.version) != entry.version:
            both = f"{found[domain]} and {entry.version}"
            raise LoadError(f"{what} imports two opsets of '{domain or 'ai.onnx'}': {both}")
        known = newest(domain)
        if known is not None and entry.version > known:
            raise LoadError(
                f"{what} imports opset {entry.version} of '{domain or 'ai.onnx'}'; the newest known one is {known}",
                hint="a newer release of onnx may know it",
            )
        found[domain] = entry.version
    return found


def _symbol(key: FunctionKey, taken: set[str]) -> str:
    base = "_".join(hint(part) or "f" for part in key if part) or "f"
    symbol, count = base, 1
    while symbol in taken:
        symbol, count = f"{base}_{count}", count + 1
    taken.add(symbol)
    return symbol


def _doc_and_metadata(attributes: dict[str, Attribute], proto: Proto) -> None:
    if proto.HasField("doc_string"):
        attributes[DOC] = text_attr(proto.doc_string)
    if proto.metadata_props:
        attributes[META] = ArrayAttr([text_attrs((p.key, p.value)) for p in proto.metadata_props])


def _has_extras(info: Proto) -> bool:
    return bool(info.doc_string or info.metadata_props or has_denotation(info.type))


def _declared(info: Proto, inferred: Attribute) -> Attribute:
    """What a ValueInfoProto adds to the type inferred."""
    if _has_extras(info):
        type_from_proto(info.type)  # a type that is wrong is refused now
        return proto_attr(info)
    if not info.HasField("type"):
        return NOT_DECLARED
    declared = type_from_proto(info.type)
    return AS_INFERRED if declared == inferred else declared


def _declarations(infos: Any, types: Sequence[Attribute]) -> ArrayAttr[Attribute]:
    return ArrayAttr([_declared(info, t) for info, t in zip(infos, types, strict=True)])
