"use strict";

// Judgements of pairs, kept in this browser where it allows that. That of a member with itself is the member that was
// chosen to be kept in its place.
const LABELS = ["near-duplicate", "not", "unsure"];

function openLabels(digest) {
  const key = `simsql-report-${digest}`;
  const labels = new Map();
  const steps = []; // for each step, its pairs and what they had before
  let kept = true;

  function save() {
    try {
      localStorage.setItem(key, JSON.stringify(Object.fromEntries(labels)));
    } catch {
      kept = false; // a full store, or a browser that refuses one to files
    }
  }

  function put(entries) {
    const before = entries.map(([pair]) => [pair, labels.get(pair)]);
    for (const [pair, label] of entries) {
      if (label === undefined) labels.delete(pair);
      else labels.set(pair, label);
    }
    save();
    return before;
  }

  try {
    const stored = JSON.parse(localStorage.getItem(key) ?? "{}");
    for (const [pair, label] of Object.entries(stored ?? {})) if (LABELS.includes(label) || Number.isInteger(label)) labels.set(pair, label);
  } catch {
    kept = false;
  }

  const name = (cluster, a, b) => `${cluster}:${Math.min(a, b)}:${Math.max(a, b)}`;
  return {
    get kept() {
      return kept;
    },
    get count() {
      return [...this.all()].length;
    },
    get steps() {
      return steps.length;
    },
    get(cluster, a, b) {
      return labels.get(name(cluster, a, b));
    },
    // Judge pairs, each [cluster, a, b], in one step. A label of undefined takes judgements back.
    set(pairs, label) {
      steps.push(put(pairs.map((pair) => [name(...pair), label])));
    },
    undo: () => steps.length && put(steps.pop()),
    // Yield [cluster, a, b, label], in the order of the clusters.
    *all() {
      const all = [...labels].map(([pair, label]) => [...pair.split(":").map(Number), label]);
      const pairs = all.filter(([, a, b]) => a !== b);
      yield* pairs.sort((x, y) => x[0] - y[0] || x[1] - y[1] || x[2] - y[2]);
    },
  };
}

function download(name, type, lines) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob(lines, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
