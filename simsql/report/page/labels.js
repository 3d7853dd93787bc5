"use strict";

// Judgements of pairs, kept in this browser where it allows that.
const LABELS = ["near-duplicate", "not", "unsure"];

function openLabels(digest) {
  const key = `simsql-report-${digest}`;
  const labels = new Map();
  let kept = true;

  function save() {
    try {
      localStorage.setItem(key, JSON.stringify(Object.fromEntries(labels)));
    } catch {
      kept = false; // a full store, or a browser that refuses one to files
    }
  }

  try {
    const stored = JSON.parse(localStorage.getItem(key) ?? "{}");
    for (const [pair, label] of Object.entries(stored ?? {})) if (LABELS.includes(label)) labels.set(pair, label);
  } catch {
    kept = false;
  }

  const name = (cluster, a, b) => `${cluster}:${Math.min(a, b)}:${Math.max(a, b)}`;
  return {
    get kept() {
      return kept;
    },
    get count() {
      return labels.size;
    },
    get(cluster, a, b) {
      return labels.get(name(cluster, a, b));
    },
    // A label of undefined takes the judgement back.
    set(cluster, a, b, label) {
      if (label) labels.set(name(cluster, a, b), label);
      else labels.delete(name(cluster, a, b));
      save();
    },
    // Yield [cluster, a, b, label], in the order of the clusters.
    *all() {
      const pairs = [...labels].map(([pair, label]) => [...pair.split(":").map(Number), label]);
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
