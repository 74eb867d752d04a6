// Prints the translations of texts; Node runs it next to the translator.
const {readFileSync} = require("node:fs");
const {Worker} = require("node:worker_threads");
const {texts, precision, model, vocabularies} = JSON.parse(readFileSync(0, "utf8"));
const worker = new Worker("./worker/translator-worker.js");
const waiting = new Map();
worker.on("message", ({id, result, error}) => error ? waiting.get(id)[1](error) : waiting.get(id)[0](result));
const call = (name, ...args) => new Promise((resolve, reject) => {
  const id = waiting.size + 1;
  waiting.set(id, [resolve, reject]);
  worker.postMessage({id, name, args});
});
const read = path => new Uint8Array(readFileSync(path)).buffer;
const languages = {from: "en", to: "de"};
(async () => {
  await call("initialize", {});
  await call("loadTranslationModel", languages, {
    model: read(model), vocabs: vocabularies.map(read), shortlist: new ArrayBuffer(0),
    config: {"gemm-precision": precision},
  });
  const found = [];
  for (const text of texts) {
    const [answer] = await call("translate", {models: [languages], texts: [{text, html: false, qualityScores: false}]});
    found.push(answer.target.text);
  }
  console.log(JSON.stringify(found));
  process.exit(0);
})();
