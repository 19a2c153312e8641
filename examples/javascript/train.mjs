// node train.mjs FOLDER [node|web]: trains the step in a folder on the batches beside it.
//
// FOLDER holds what make_step.py wrote. Prints the losses as JSON, and writes the trained state to trained-*.safetensors.

import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { readSafetensors, Trainer, writeSafetensors } from "./trainer.mjs";

const BACKENDS = {
  node: { package: "onnxruntime-node", provider: "cpu" },
  web: { package: "onnxruntime-web", provider: "wasm" },
};

const [folder, backend = "node"] = process.argv.slice(2);
if (folder === undefined || !(backend in BACKENDS)) {
  console.error("usage: node train.mjs FOLDER [node|web]");
  process.exit(2);
}

const ort = await import(BACKENDS[backend].package);
ort.env.wasm.numThreads = 1;
const session = await ort.InferenceSession.create(new Uint8Array(await readFile(join(folder, "step.onnx"))), {
  executionProviders: [BACKENDS[backend].provider],
  intraOpNumThreads: 1,
});
const manifest = JSON.parse(await readFile(join(folder, "manifest.json"), "utf-8"));
const initial = readSafetensors(await readFile(join(folder, "state.safetensors")));
const { epochs, batches } = JSON.parse(await readFile(join(folder, "data.json"), "utf-8"));
const data = readSafetensors(await readFile(join(folder, "data.safetensors")));

const trainer = new Trainer(ort, session, manifest, initial);
const history = [];
for (let epoch = 0; epoch < epochs; epoch++) {
  trainer.beginEpoch(initial);
  for (let i = 0; i < batches; i++) {
    history.push(await trainer.step({ x: data[`${i}/x`], target: data[`${i}/target`] }));
  }
}
await writeFile(join(folder, `trained-${backend}.safetensors`), writeSafetensors(trainer.values()));
console.log(JSON.stringify(history));
