// Runs a training step that `TrainingStep.save` wrote: the session is a plain inference session, and the state goes
// round. Nothing here knows of files or of Node, so that a browser can use it as it is.

const ARRAYS = {
  float32: Float32Array,
  float64: Float64Array,
  int32: Int32Array,
  int64: BigInt64Array,
  uint32: Uint32Array,
  uint64: BigUint64Array,
  uint8: Uint8Array,
  int8: Int8Array,
  bool: Uint8Array,
};

const SAFETENSORS = {
  F32: "float32",
  F64: "float64",
  I32: "int32",
  I64: "int64",
  U32: "uint32",
  U64: "uint64",
  U8: "uint8",
  I8: "int8",
  BOOL: "bool",
};

/** The arrays in the bytes of a safetensors file: {name: {dtype, shape, data}}. */
export function readSafetensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const length = Number(view.getBigUint64(0, true));
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + length)));
  const found = {};
  for (const [name, entry] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const dtype = SAFETENSORS[entry.dtype];
    if (dtype === undefined) throw new Error(`'${name}' is of the dtype ${entry.dtype}, which is not supported`);
    const [begin, end] = entry.data_offsets;
    // A copy, since elements in the file need not lie where their type asks for.
    const start = bytes.byteOffset + 8 + length;
    const data = new ARRAYS[dtype](bytes.buffer.slice(start + begin, start + end));
    found[name] = { dtype, shape: entry.shape, data };
  }
  return found;
}

/** The bytes of a safetensors file with these arrays: what `readSafetensors` reads. */
export function writeSafetensors(arrays) {
  const codes = Object.fromEntries(Object.entries(SAFETENSORS).map(([code, dtype]) => [dtype, code]));
  const header = {};
  let offset = 0;
  for (const [name, { dtype, shape, data }] of Object.entries(arrays)) {
    header[name] = { dtype: codes[dtype], shape, data_offsets: [offset, offset + data.byteLength] };
    offset += data.byteLength;
  }
  let text = JSON.stringify(header);
  text += " ".repeat((8 - (text.length % 8)) % 8);
  const head = new TextEncoder().encode(text);
  const bytes = new Uint8Array(8 + head.length + offset);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(head.length), true);
  bytes.set(head, 8);
  for (const [name, { data }] of Object.entries(arrays)) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), 8 + head.length + header[name].data_offsets[0]);
  }
  return bytes;
}

export class Trainer {
  /**
   * @param ort the module `onnxruntime-node` or `onnxruntime-web`
   * @param session an inference session of `step.onnx`
   * @param manifest the content of `manifest.json`
   * @param state the content of `state.safetensors`, as `readSafetensors` gives it
   */
  constructor(ort, session, manifest, state) {
    if (manifest.format !== "irkit.training-step" || manifest.version !== 1) {
      throw new Error(`a manifest of ${manifest.format} ${manifest.version} is not one that this example reads`);
    }
    this.ort = ort;
    this.session = session;
    this.manifest = manifest;
    this.state = {};
    for (const { name, input, dtype, shape } of manifest.state) {
      if (!(name in state)) throw new Error(`the state has no '${name}'`);
      this.state[input] = new ort.Tensor(dtype, state[name].data, shape);
    }
  }

  /** One step on a batch, {name: {dtype, shape, data}}; gives the loss and the metrics as numbers, by name. */
  async step(batch) {
    const feeds = { ...this.state };
    for (const { name } of this.manifest.batch) {
      const { dtype, shape, data } = batch[name];
      feeds[name] = new this.ort.Tensor(dtype, data, shape);
    }
    const found = await this.session.run(feeds);
    for (const { input, output } of this.manifest.state) {
      if (output !== null) this.state[input] = found[output];
    }
    const scalars = this.manifest.outputs.filter(({ kind }) => kind !== "value");
    return Object.fromEntries(scalars.map(({ name }) => [name, Number(found[name].data[0])]));
  }

  /** The state by variable, as `writeSafetensors` takes it. */
  values() {
    const entries = this.manifest.state.map(({ name, input, dtype, shape }) => [
      name,
      { dtype, shape, data: this.state[input].data },
    ]);
    return Object.fromEntries(entries);
  }

  /** What is counted per epoch (metrics) begins anew, from the state that the step was saved with. */
  beginEpoch(initial) {
    for (const { name, input, dtype, shape, reset } of this.manifest.state) {
      if (reset === "epoch") this.state[input] = new this.ort.Tensor(dtype, initial[name].data, shape);
    }
  }
}
