"use strict";

(() => {
  const PAGE = 40; // clusters in the list
  const MEMBERS = 12; // members in the table
  const LONG = 4000; // characters of an equal passage beyond which its middle is folded
  const ENDS = 600; // characters that a folded passage shows at either end
  const CHANGED = 20_000; // characters of a changed passage that are shown at first
  const UNFOLDED = 50_000; // characters that one click unfolds: a line of a million takes a browser seconds
  const SLICE = 12; // milliseconds of a search before the page may react
  const TAIL = 22; // characters of a long name after the ellipsis, at most
  const DECISIONS = ["representative", "kept", "dropped"];

  const $ = (id) => document.getElementById(id);
  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const number = (value) => value.toLocaleString("en");
  // Rounded down: .699 is not the .70 at which a text is dropped.
  const share = (value) => (value === null ? "–" : (Math.floor(value * 100 + 1e-6) / 100).toFixed(2));

  // ---- data

  const index = JSON.parse($("index").textContent);
  const chunks = document.querySelectorAll("script.chunk");
  const labels = openLabels(index.digest);
  const pictures = index.noun === "picture"; // the text of one is its size and its address

  class Member {
    constructor(row) {
      [this.id, this.place, this.decision, this.kept, this.keptDistance, this.keptSimilarity] = row;
      [, , , , , , this.distance, this.similarity, this.listed, this.characters, this.snippet, this.text] = row;
    }

    // Its name in a drop list, if any.
    get line() {
      return ["", this.id, this.place][this.listed] ?? this.listed;
    }

    // How close it is to the text that decides about it: [distance, similarity].
    get decisive() {
      return this.decision === 2 ? [this.keptDistance, this.keptSimilarity] : [this.distance, this.similarity];
    }

    // Of a dropped text to the kept one, 0 to 1, by distance if texts were not compared; more for all others.
    get certainty() {
      if (this.decision !== 2) return 2;
      return this.keptSimilarity ?? 1 - this.keptDistance / 64;
    }
  }

  const clusters = index.clusters.map(([chunk, at, size, rows], position) => {
    const members = rows.map((row) => new Member(row));
    let doubtful = Math.min(1, members.length - 1); // the least similar drop
    members.forEach((member, other) => {
      if (member.certainty < members[doubtful].certainty) doubtful = other;
    });
    return { number: position + 1, chunk, at, size, members, doubtful, certainty: members[doubtful].certainty };
  });

  // Return a name without what all names begin with.
  function short(name, prefix) {
    const rest = name.slice(prefix.length);
    const isLine = prefix.endsWith(":") && prefix === index.prefixes[1] && /^\p{Nd}+$/u.test(rest);
    return isLine ? `line ${rest}` : rest || name;
  }

  // Return a name of one line. If there is no room for all of it, its middle is left out.
  function named(name, prefix) {
    let line = visible.line(short(name, prefix));
    const made = element("bdi", { class: "name", title: visible.line(name) });
    if (line.length > 2 * TAIL) {
      const slash = line.lastIndexOf("/");
      const tail = line.length - slash <= TAIL ? slash : whole(line, line.length - TAIL);
      const head = made.appendChild(element("span", { class: "head" }, line.slice(0, tail)));
      head.style.maxWidth = `calc(100% - ${(line.length - tail) * 0.6}em)`;
      line = line.slice(tail);
    }
    made.append(line);
    return made;
  }

  const parsed = new Map();
  function chunk(at) {
    if (!parsed.has(at)) {
      if (parsed.size >= 8) parsed.delete(parsed.keys().next().value);
      parsed.set(at, JSON.parse(chunks[at].textContent));
    }
    return parsed.get(at);
  }

  // Return a text as [string, whether it is whole], or null if the page does not hold it.
  function textOf(cluster, member) {
    if (member.text < 0) return null;
    const text = chunk(cluster.chunk)[cluster.at][member.text];
    return typeof text === "string" ? [text, true] : [text[0], false];
  }

  // ---- search and filters

  let found = clusters;
  let pattern = null; // of the search, as a regular expression
  let running = 0; // number of the search: a newer one ends it

  const within = (value, [low, high]) => value === null || (value >= low && value <= high);
  const rangeOf = (name) => [
    $(`${name}-low`).value === "" ? -Infinity : Number($(`${name}-low`).value),
    $(`${name}-high`).value === "" ? Infinity : Number($(`${name}-high`).value),
  ];

  function filter() {
    const [size, similarity, distance] = ["size", "similarity", "distance"].map(rangeOf);
    const decision = $("decision").value, judged = $("judged").value;
    const ofMembers = decision || [...similarity, ...distance].some(Number.isFinite);
    const judgements = new Map();
    for (const [cluster, , , label] of labels.all()) judgements.set(cluster, [...(judgements.get(cluster) ?? []), label]);
    const active = [size, similarity, distance].filter((range) => range.some(Number.isFinite)).length + !!decision + !!judged;
    $("active").textContent = active ? `(${active})` : "";
    return clusters.filter((cluster) => {
      if (!within(cluster.size, size)) return false;
      const given = judgements.get(cluster.number) ?? [];
      if (judged === "none" ? given.length : judged === "some" ? !given.length : judged && !given.includes(judged)) return false;
      return (
        !ofMembers ||
        cluster.members.some((member, position) => {
          const [bits, alike] = member.decisive;
          return position > 0 && (!decision || member.decision === Number(decision)) && within(bits, distance) && within(alike, similarity);
        })
      );
    });
  }

  function sort(some) {
    const key = $("order").value === "size" ? (cluster) => -cluster.size : (cluster) => cluster.certainty;
    return [...some].sort((x, y) => key(x) - key(y) || x.number - y.number);
  }

  function matches(cluster) {
    if (cluster.members.some((member) => pattern.test(member.id) || pattern.test(member.place))) return true;
    if (pictures) return false;
    return chunk(cluster.chunk)[cluster.at].some((text) => pattern.test(typeof text === "string" ? text : text[0]));
  }

  async function search() {
    const mine = ++running;
    const words = $("search").value.trim();
    // A phrase may go on in the next line.
    const source = words.split(/\s+/u).map((word) => word.replace(/[\\^$.*+?()[\]{}|/]/gu, "\\$&")).join("\\s+");
    pattern = words ? new RegExp(source, "iu") : null;
    const candidates = filter();
    if (!pattern) return show(candidates);
    const hits = [];
    let start = performance.now();
    let shown = -1;
    for (const [position, cluster] of candidates.entries()) {
      if (matches(cluster)) hits.push(cluster);
      if (performance.now() - start > SLICE) {
        if (hits.length !== shown && (shown = hits.length) <= PAGE) show([...hits], false);
        $("found").textContent = `Searching … ${Math.round((100 * position) / candidates.length)}%`;
        await new Promise((resolve) => setTimeout(resolve));
        if (mine !== running) return undefined;
        start = performance.now();
      }
    }
    return show(hits);
  }

  function show(some, complete = true) {
    found = sort(some);
    $("list").replaceChildren();
    const documents = found.reduce((sum, cluster) => sum + cluster.size, 0);
    if (complete) {
      const all = found.length === clusters.length ? "" : ` of ${number(clusters.length)}`;
      $("found").textContent = `${number(found.length)}${all} ${clusters.length === 1 ? "cluster" : "clusters"}, ${number(documents)} ${index.noun}s`;
    }
    $("nothing").hidden = found.length > 0 || !complete;
    const selected = state.cluster && found.includes(state.cluster) ? state.cluster : found[0];
    select(selected ?? null);
  }

  // ---- list of clusters

  const state = { cluster: null, page: 0, memberPage: 0, left: 0, right: 0, pinned: false, unfolded: new Map() };

  function drawList() {
    const pages = Math.max(1, Math.ceil(found.length / PAGE));
    state.page = Math.min(state.page, pages - 1);
    const judged = new Set();
    for (const [cluster] of labels.all()) judged.add(cluster);
    $("list").replaceChildren(
      ...found.slice(state.page * PAGE, (state.page + 1) * PAGE).map((cluster) => {
        const first = cluster.members[0];
        const button = element("button", { type: "button", "data-cluster": cluster.number, tabindex: -1 });
        const title = element("span", { class: "row" }, element("span", { class: "at" }, number(cluster.number)));
        title.append(named(first.id, index.prefixes[0]));
        title.append(element("span", { class: "size", title: `${index.noun}s` }, number(cluster.size)));
        const snippet = element("span", { class: "snippet", dir: "auto" }, visible.line(first.snippet));
        const meter = element("span", { class: "row low" }, snippet);
        if (judged.has(cluster.number)) meter.append(element("span", { class: "judged", title: "has a judgement" }, "✓"));
        const [, alike] = cluster.members[cluster.doubtful].decisive;
        if (alike !== null) meter.append(element("span", { class: "similarity", title: "of the least similar drop" }, share(alike)));
        button.append(title, meter);
        return element("li", {}, button);
      }),
    );
    markCurrent();
    $("page").textContent = `page ${number(state.page + 1)} of ${number(pages)}`;
    $("pager").hidden = pages < 2;
    $("previous-page").disabled = state.page === 0;
    $("next-page").disabled = state.page === pages - 1;
  }

  // Mark the cluster that is shown in the list, and return whether the list holds it.
  function markCurrent() {
    $("list").querySelector("[aria-current]")?.removeAttribute("aria-current");
    const button = $("list").querySelector(`[data-cluster="${state.cluster?.number}"]`);
    button?.setAttribute("aria-current", "true");
    // One of them is reached by Tab, the others by arrows.
    $("list").querySelector('[tabindex="0"]')?.setAttribute("tabindex", -1);
    (button ?? $("list").querySelector("button"))?.setAttribute("tabindex", 0);
    if (button) {
      // Never the page itself.
      const { offsetTop: top, offsetHeight: height } = button.parentElement;
      const list = $("list");
      list.scrollTop = Math.min(top, Math.max(list.scrollTop, top + height - list.clientHeight));
    }
    return button;
  }

  function turnPage(step) {
    state.page += step;
    drawList();
    $("list").scrollTop = 0;
  }

  // ---- one cluster

  function select(cluster) {
    const position = found.indexOf(cluster);
    if (position >= 0) state.page = Math.floor(position / PAGE);
    $("cluster").hidden = !cluster;
    if (cluster !== state.cluster) {
      state.cluster = cluster;
      state.pinned = false;
      if (cluster) choose(cluster.doubtful);
    } else if (cluster) {
      highlight();
    }
    markCurrent() || drawList();
    $("previous-cluster").disabled = position <= 0;
    $("next-cluster").disabled = position < 0 || position === found.length - 1;
  }

  function stepCluster(step) {
    const next = found[found.indexOf(state.cluster) + step];
    if (!next) return;
    const inList = $("list").contains(document.activeElement);
    select(next);
    if (inList) $("list").querySelector("[aria-current]").focus({ preventScroll: true });
    $("status").textContent = `Cluster ${next.number}, ${next.size} ${index.noun}s`;
  }

  // Show a member as text B, beside the text that decides about it unless text A was chosen.
  function choose(right) {
    const { members } = state.cluster;
    state.right = right;
    if (!state.pinned) {
      const { decision, kept } = members[right];
      state.left = decision === 2 && kept >= 0 && kept !== right ? kept : 0;
    }
    state.memberPage = Math.floor(right / MEMBERS);
    state.unfolded.clear();
    drawCluster();
  }

  function stepMember(step) {
    const { members } = state.cluster;
    let next = state.right + step;
    if (next === state.left && members.length > 2) next += step;
    if (next >= 0 && next < members.length) choose(next);
  }

  function drawCluster() {
    const { cluster } = state;
    $("heading").textContent = `Cluster ${number(cluster.number)}`;
    const dropped = cluster.members.filter((member) => member.decision === 2).length;
    const missing = cluster.size - cluster.members.length;
    const parts = [`${number(cluster.size)} ${index.noun}s`, `${number(dropped)} dropped`];
    if (missing) parts.push(`${number(missing)} left out of this page`);
    $("heading").append(element("small", {}, parts.join(" · ")));
    drawMembers();
    drawPair();
  }

  function drawMembers() {
    const { members } = state.cluster;
    const pages = Math.ceil(members.length / MEMBERS);
    const start = state.memberPage * MEMBERS;
    const rows = members.slice(start, start + MEMBERS).map((member, offset) => {
      const position = start + offset;
      const pick = (side, title) => {
        const radio = element("input", { type: "radio", name: side, value: position, "aria-label": `${title}: ${visible.line(member.id)}` });
        radio.checked = state[side] === position;
        return element("td", { class: "pick" }, radio);
      };
      const names = element("td", { class: "names" }, named(member.id, index.prefixes[0]));
      if (member.place !== member.id) names.append(element("small", {}, named(member.place, index.prefixes[1])));
      const decision = DECISIONS[member.decision];
      const judgement = labels.get(state.cluster.number, state.left, position);
      const badge = element("td", {}, element("span", { class: `badge ${decision}` }, decision));
      if (judgement && position !== state.left) badge.append(element("span", { class: `verdict ${judgement}` }, judgement));
      const [distance, similarity] = member.decisive;
      const bits = element("small", {}, ` ${distance} bit${distance === 1 ? "" : "s"}`);
      const close = element("td", { class: "number" }, ...(member.decision ? [share(similarity), bits] : []));
      const characters = element("td", { class: "number characters" }, number(member.characters));
      const picks = [pick("left", pictures ? "Picture A" : "Text A"), pick("right", pictures ? "Picture B" : "Text B")];
      const row = element("tr", { "data-member": position }, ...picks, names, badge, close, characters);
      if (position === state.right) row.setAttribute("aria-current", "true");
      return row;
    });
    $("members").tBodies[0].replaceChildren(...rows);
    $("member-pager").hidden = pages < 2;
    $("member-page").textContent = `members ${number(start + 1)} to ${number(start + rows.length)} of ${number(members.length)}`;
    $("previous-members").disabled = state.memberPage === 0;
    $("next-members").disabled = state.memberPage === pages - 1;
  }

  function turnMembers(step) {
    state.memberPage += step;
    drawMembers();
  }

  // ---- two texts

  let compared = { key: "", parts: null, whole: true }; // the last differences: folding and judging need no others

  function drawPair() {
    const { cluster } = state;
    const [a, b] = [cluster.members[state.left], cluster.members[state.right]];
    const [left, right] = [textOf(cluster, a), textOf(cluster, b)];
    const key = [cluster.number, state.left, state.right].join(":");
    if (compared.key !== key) {
      const parts = left && right && !pictures ? differences.compare(left[0], right[0]) : null;
      compared = { key, parts, whole: left?.[1] && right?.[1] };
    }
    for (const [side, member, text, which] of [["left", a, left, 0], ["right", b, right, 1]]) {
      $(`${side}-name`).replaceChildren(named(member.id, index.prefixes[0]));
      if (pictures) {
        $(`${side}-note`).textContent = text ? "" : "The page does not hold this picture.";
        const [size, src] = text?.[0].split(" ") ?? [];
        const alt = `${visible.line(short(member.id, index.prefixes[0]))}, ${size} pixels`;
        $(side).replaceChildren(...(text ? [element("img", { src, alt })] : []));
        continue;
      }
      const held = text && !text[1] ? `The page holds the first ${number([...text[0]].length)} of ${number(member.characters)} characters.` : "";
      $(`${side}-note`).textContent = text ? held : "The page does not hold this text.";
      const parts = compared.parts?.[which] ?? [[text?.[0] ?? "", false]];
      $(side).replaceChildren();
      parts.forEach(([string, changed], part) => drawPart($(side), string, changed, part));
    }
    drawJudgement();
    highlight();
  }

  function drawPart(pane, string, changed, part) {
    if (!string) return;
    const parent = changed ? pane.appendChild(element("mark")) : pane;
    const more = state.unfolded.get(part) ?? 0;
    const folded = string.length > (changed ? CHANGED : LONG) + more;
    if (!folded) return void visible.append(parent, string);
    const head = whole(string, (changed ? CHANGED : ENDS) + more);
    const tail = whole(string, changed ? string.length : string.length - ENDS);
    visible.append(parent, string.slice(0, head));
    const words = `${number(tail - head)} ${changed ? "more" : "equal"} characters`;
    parent.append(element("button", { type: "button", class: "fold", "data-part": part, title: "Show more of them" }, `⋯ ${words} ⋯`));
    visible.append(parent, string.slice(tail));
  }

  // Return a place at or before this one that is not inside a character.
  function whole(string, at) {
    const code = string.charCodeAt(at);
    return code >= 0xdc00 && code <= 0xdfff ? at - 1 : at;
  }

  function drawJudgement() {
    const { cluster, left, right } = state;
    const label = left === right ? undefined : labels.get(cluster.number, left, right);
    for (const button of document.querySelectorAll("[data-label]")) {
      button.setAttribute("aria-pressed", button.dataset.label === label);
      button.disabled = left === right;
    }
    const close = closeness(cluster, left, right);
    const words = close ? [`similarity ${share(close[1])}`, `distance ${close[0]}`] : [];
    $("closeness").textContent = [...words, ...changes()].join(" · ");
    $("export").disabled = !labels.count;
    $("export").textContent = labels.count ? `Export ${number(labels.count)} label${labels.count === 1 ? "" : "s"}` : "Export labels";
    $("unkept").hidden = labels.kept;
    const refused = rejected().size;
    $("drop-list").hidden = !refused;
    if (!refused) return;
    const listed = `${number(dropList().length)} of ${number(index.dropped)} drops`;
    $("drop-list").replaceChildren(`Save drop list without ${number(refused)}`, element("small", {}, ` ${listed}`));
  }

  // Return the documents that were dropped in favour of one that is not a near-duplicate of them.
  function rejected() {
    const drops = new Set();
    for (const [at, ...pair] of labels.all()) {
      if (pair.pop() !== "not") continue;
      const members = pair.map((position) => clusters[at - 1]?.members[position]);
      for (const [drop, kept] of [members, members.toReversed()])
        if (drop?.line && clusters[at - 1].members[drop.kept] === kept) drops.add(drop);
    }
    return drops;
  }

  // Return the names of all other dropped documents, as the run lists them.
  function dropList() {
    const refused = rejected();
    return clusters.flatMap((cluster) => cluster.members.filter((member) => member.line && !refused.has(member)).map((member) => member.line));
  }

  // Say in how many places the texts that are shown differ, if both are there.
  function changes() {
    if (state.left === state.right) return [`the same ${index.noun}`];
    if (!compared.parts) return [];
    const [a, b] = compared.parts;
    const count = a.filter(([text, changed], part) => changed && (text || b[part][0])).length;
    const where = compared.whole ? "" : " in what the page holds";
    if (count || where) return [(count === 1 ? "1 change" : `${number(count)} changes`) + where];
    return [a.every(([text], part) => text === b[part][0]) ? "the same text" : "the same words"];
  }

  // Return [distance, similarity] of two members where the run has measured it.
  function closeness(cluster, a, b) {
    for (const [one, other] of [[a, b], [b, a]]) {
      const member = cluster.members[one];
      if (one !== other && member.decision === 2 && member.kept === other) return [member.keptDistance, member.keptSimilarity];
      if (one !== other && other === 0) return [member.distance, member.similarity];
    }
    return null;
  }

  function judge(label) {
    const { cluster, left, right } = state;
    if (!cluster || left === right) return;
    const before = labels.get(cluster.number, left, right);
    labels.set(cluster.number, left, right, before === label ? undefined : label);
    $("status").textContent = before === label ? "Judgement taken back" : `Judged: ${label}`;
    drawJudgement();
    drawMembers();
    drawList();
  }

  function exportLabels() {
    const lines = [];
    for (const [at, left, right, label] of labels.all()) {
      const cluster = clusters[at - 1];
      const [a, b] = [cluster?.members[left], cluster?.members[right]];
      if (!a || !b) continue;
      const texts = [textOf(cluster, a), textOf(cluster, b)];
      // A part of a text would be judged as another text.
      const whole = !pictures && texts.every((text) => text?.[1]) ? { text_a: texts[0][0], text_b: texts[1][0] } : {};
      lines.push(JSON.stringify({ id_a: a.id, id_b: b.id, ...whole, label }) + "\n");
    }
    download("labels.jsonl", "application/jsonl", lines);
  }

  // Mark what was searched in the texts that are shown.
  function highlight() {
    if (!globalThis.Highlight) return;
    CSS.highlights.delete("search");
    if (!pattern) return;
    const everywhere = new RegExp(pattern.source, "giu");
    const ranges = [];
    for (const pane of [$("left"), $("right")]) {
      const walker = document.createTreeWalker(pane, NodeFilter.SHOW_TEXT);
      while (walker.nextNode() && ranges.length < 500) {
        for (const hit of walker.currentNode.data.matchAll(everywhere)) {
          const range = new Range();
          range.setStart(walker.currentNode, hit.index);
          range.setEnd(walker.currentNode, hit.index + hit[0].length);
          ranges.push(range);
        }
      }
    }
    CSS.highlights.set("search", new Highlight(...ranges));
  }

  // ---- events

  const RANGES = ["size", "similarity", "distance"].flatMap((name) => [`${name}-low`, `${name}-high`]);

  function reset(everything) {
    for (const id of [...RANGES, "decision", "judged"]) $(id).value = "";
    if (everything) $("search").value = "";
    search();
  }

  const click = (id, action) => $(id).addEventListener("click", action);
  click("keys", () => $("help").showModal());
  click("export", exportLabels);
  click("drop-list", () => download("drop-list.txt", "text/plain", dropList().map((line) => line + index.lineEnd)));
  click("reset", () => reset(false));
  click("reset-all", () => reset(true));
  click("previous-page", () => turnPage(-1));
  click("next-page", () => turnPage(1));
  click("previous-members", () => turnMembers(-1));
  click("next-members", () => turnMembers(1));
  click("previous-cluster", () => stepCluster(-1));
  click("next-cluster", () => stepCluster(1));
  click("list", (event) => {
    const row = event.target.closest("[data-cluster]");
    if (!row) return;
    select(clusters[row.dataset.cluster - 1]);
    location.hash = "cluster"; // a narrow page shows either this or the list, and Back leads to the list
    $("cluster").focus({ preventScroll: true });
  });
  addEventListener("hashchange", () => {
    if (location.hash !== "#cluster") $("list").querySelector("[aria-current]")?.scrollIntoView({ block: "center" });
  });
  $("members").addEventListener("click", (event) => {
    const row = event.target.closest("[data-member]");
    if (row && !event.target.closest(".pick")) choose(Number(row.dataset.member));
  });
  $("members").addEventListener("change", (event) => {
    const { name, value } = event.target;
    if (name === "left") {
      state.left = Number(value);
      state.pinned = true;
      choose(state.right);
    } else choose(Number(value));
    $("members").querySelector(`[name=${name}][value="${value}"]`)?.focus();
  });
  for (const button of document.querySelectorAll("[data-label]")) button.addEventListener("click", () => judge(button.dataset.label));
  document.querySelector(".texts").addEventListener("click", (event) => {
    const fold = event.target.closest(".fold");
    if (!fold) return;
    const part = Number(fold.dataset.part);
    state.unfolded.set(part, (state.unfolded.get(part) ?? 0) + UNFOLDED);
    drawPair();
  });
  let waiting;
  $("search").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(search, 120);
  });
  for (const id of [...RANGES, "decision", "judged", "order"]) $(id).addEventListener("input", search);

  const KEYS = {
    j: () => stepCluster(1),
    ArrowDown: () => stepCluster(1),
    k: () => stepCluster(-1),
    ArrowUp: () => stepCluster(-1),
    n: () => state.cluster && stepMember(1),
    p: () => state.cluster && stepMember(-1),
    1: () => judge(LABELS[0]),
    2: () => judge(LABELS[1]),
    3: () => judge(LABELS[2]),
    "/": () => $("search").focus(),
    "?": () => $("help").showModal(),
  };
  document.addEventListener("keydown", (event) => {
    const { target, key } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || $("help").open) return;
    if (key === "Escape" && target !== document.body) {
      if (target === $("search") && target.value) {
        target.value = "";
        search();
      }
      return void target.blur();
    }
    const typing = target.closest("input:not([type=radio]), select, textarea");
    // Arrows move the choice among radio buttons, and scroll texts.
    if (typing || (target.matches("input, .texts") && key.startsWith("Arrow")) || !Object.hasOwn(KEYS, key)) return;
    event.preventDefault();
    KEYS[key]();
  });

  search();
})();
