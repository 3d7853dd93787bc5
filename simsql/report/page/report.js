"use strict";

(() => {
  const PAGE = 40; // clusters in the list
  const MEMBERS = 12; // members in the table
  const LONG = 1600; // characters of an equal passage beyond which its middle is folded
  const ENDS = 400; // characters that a folded passage shows at either end
  const CHANGED = 20_000; // characters of a changed passage that are shown at first
  const UNFOLDED = 50_000; // characters that one click unfolds: a line of a million takes a browser seconds
  const SLICE = 12; // milliseconds of a search before the page may react
  const TAIL = 22; // characters of a long name after the ellipsis, at most
  const NEAR = 2000; // characters from the first difference on in which a list looks for differences
  const TOLD = 3; // differences that a list shows
  const CODE = /[{}<>=()[\]|\\_$&#*]/gu; // signs that are more than one of 35 characters in code and markup
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
      [, , , , , , this.distance, this.similarity, this.listed, this.kind, this.others, this.characters, this.text] = row;
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
    const stars = new Map(); // for each member that the run keeps, those dropped in its favour
    members.forEach(({ decision, kept }, other) => {
      if (decision === 2) stars.set(kept, stars.get(kept) ?? []).get(kept).push(other);
    });
    // Of the members that fit the filters, the least similar drop is `doubtful`. Keepers are as the user chose them.
    return { number: position + 1, chunk, at, size, members, stars, shown: [], doubtful: 0, keepers: new Map() };
  });

  // Return with what all ids, and all places, of some members begin: folders or files.
  const shared = (members) => ["id", "place"].map((field) => folder(members.map((one) => one[field]).reduce((a, b) => a.slice(0, parting(a, b)), members[0]?.[field] ?? "")));
  const folder = (name) => name.slice(0, Math.max(name.lastIndexOf("/"), name.lastIndexOf(":")) + 1);

  // Return the first place at which two strings differ.
  function parting(a, b) {
    let at = 0;
    while (at < a.length && a[at] === b[at]) at++;
    return at;
  }

  const prefixes = shared(clusters.flatMap(({ members }) => members));
  const said = prefixes[0] === prefixes[1] || !prefixes[1] ? ["All names begin with", prefixes[0]] : ["All places begin with", prefixes[1]];
  $("prefix").append(`${said[0]} `, element("bdi", {}, visible.line(said[1])));
  $("prefix").hidden = !said[1];

  // Return a name without what all names begin with.
  function short(name, prefix) {
    const rest = name.slice(prefix.length);
    const isLine = prefix.endsWith(":") && prefix.startsWith(prefixes[1]) && /^\p{Nd}+$/u.test(rest);
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

  // ---- who is kept

  // Return [distance, similarity] of two members where the run has measured it.
  function closeness(cluster, a, b) {
    const { members, stars } = cluster;
    if (a === b) return null;
    for (const [one, other] of [[a, b], [b, a]]) {
      const member = members[one];
      if (member.decision === 2 && member.kept === other) return [member.keptDistance, member.keptSimilarity];
      if (other === 0) return [member.distance, member.similarity];
    }
    const [first, second] = a < b ? [a, b] : [b, a];
    const star = members[first].kept === members[second].kept ? stars.get(members[first].kept) : null;
    const similarity = members[second].others[star?.indexOf(first)] ?? null;
    return similarity === null ? null : [null, similarity];
  }

  const refuses = (cluster, a, b) => labels.get(cluster.number, a, b) === "not";

  // Return whether a dropped member can be kept instead: the one that is kept now may be dropped, and it is similar
  // enough to all that would be dropped in its favour.
  function canKeep(cluster, position) {
    const { decision, kept } = cluster.members[position];
    if (decision !== 2 || !cluster.members[kept]?.line || index.drop === null || refuses(cluster, position, kept)) return false;
    const similar = (other) => (closeness(cluster, position, other)?.[1] ?? -1) >= index.drop;
    return [kept, ...cluster.stars.get(kept)].every((other) => other === position || refuses(cluster, other, kept) || similar(other));
  }

  // Return the member that is kept in favour of another: itself if it is kept, -1 if it is not on the page.
  function keeper(cluster, position) {
    const { decision, kept } = cluster.members[position];
    const centre = decision === 2 ? kept : position;
    if (!cluster.keepers.has(centre)) {
      const chosen = labels.get(cluster.number, centre, centre);
      const valid = cluster.members[chosen]?.kept === centre && canKeep(cluster, chosen);
      cluster.keepers.set(centre, valid ? chosen : centre);
    }
    return cluster.keepers.get(centre);
  }

  // Return the pairs of dropped members and those kept in their favour, as the labels have them.
  function drops(cluster, positions = cluster.members.keys()) {
    const pairs = [...positions].map((position) => [cluster.number, position, keeper(cluster, position)]);
    return pairs.filter(([, position, kept]) => kept !== position && kept >= 0);
  }

  // Return the names of the documents that can be dropped, as the run lists them, without those that were rejected
  // and those whose kept text nobody can see here.
  function dropList() {
    return clusters.flatMap((cluster) => cluster.members.filter(({ line, kept }, position) => {
      const chosen = keeper(cluster, position);
      return line && chosen >= 0 && chosen !== position && !refuses(cluster, position, chosen) && !refuses(cluster, position, kept);
    }).map((member) => member.line));
  }

  const listed = String(clusters.flatMap(({ members }) => members.filter((member) => member.decision === 2 && member.kept >= 0 && member.line).map(({ line }) => line)));

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
    const kind = $("kind").value, judged = $("judged").value;
    const ofMembers = kind || [...similarity, ...distance].some(Number.isFinite);
    const judgements = new Map();
    for (const [cluster, , , label] of labels.all()) judgements.set(cluster, [...(judgements.get(cluster) ?? []), label]);
    const active = [size, similarity, distance].filter((range) => range.some(Number.isFinite)).length + !!judged;
    $("active").textContent = active ? `(${active})` : "";
    return clusters.filter((cluster) => {
      if (!within(cluster.size, size)) return false;
      const given = judgements.get(cluster.number) ?? [];
      if (judged === "none" ? given.length : judged === "some" ? !given.length : judged && !given.includes(judged)) return false;
      const { members } = cluster;
      cluster.shown = [...members.keys()].filter((position) => {
        const member = members[position], [bits, alike] = member.decisive;
        const fits = position > 0 && (!kind || (member.kind || "kept") === kind);
        return !ofMembers || (fits && within(bits, distance) && within(alike, similarity));
      });
      const start = ofMembers ? cluster.shown[0] : Math.min(1, members.length - 1);
      cluster.doubtful = cluster.shown.reduce((least, other) => (members[other].certainty < members[least].certainty ? other : least), start);
      return cluster.shown.length > 0;
    });
  }

  function sort(some) {
    const key = $("order").value === "size" ? (cluster) => -cluster.size : ({ members, doubtful }) => members[doubtful].certainty;
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

  // Say in a list in which words a member differs from another, or what its text begins with if in none.
  function tell(cluster, a, b) {
    const told = element("span", { class: "snippet", dir: "auto" });
    const [left, right] = [a, b].map((at) => (cluster.members[at] && textOf(cluster, cluster.members[at])?.[0]) ?? "");
    const at = parting(left, right);
    if (pictures) told.append(right.split(" ")[0]);
    else if (at === Math.max(left.length, right.length)) told.append(visible.line(right.slice(0, 200).trim().replace(/\s+/gu, " ")));
    else {
      const start = Math.max(left.lastIndexOf(" ", at), left.lastIndexOf("\n", at), 0);
      const sides = differences.compare(...[left, right].map((text) => text.slice(start, whole(text, start + NEAR))));
      // Where both are cut, the last difference may be none.
      const last = Math.max(2, sides[0].length - (Math.min(left.length, right.length) > start + NEAR ? 2 : 0));
      for (let part = 1; part < Math.min(last, 2 * TOLD); part += 2) {
        for (const [which, name] of ["del", "ins"].entries()) {
          const text = sides[which][part][0];
          if (text) visible.append(told.appendChild(element(name)), text.slice(0, whole(text, 60)).replace(/\s+/gu, " "));
          told.append(" ");
        }
      }
    }
    return told;
  }

  // ---- list of clusters

  const state = { cluster: null, page: 0, memberPage: 0, left: 0, right: 0, pinned: false, unfolded: new Map(), change: 0, gap: 0 };

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
        title.append(named(first.id, prefixes[0]));
        title.append(element("span", { class: "size", title: `${index.noun}s` }, number(cluster.size)));
        const meter = element("span", { class: "row low" }, tell(cluster, keeper(cluster, cluster.doubtful), cluster.doubtful));
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
    if (button) scrollTo($("list"), button.parentElement);
    return button;
  }

  // Scroll a list as far as needed, and never the page itself. The row above is seen, too: a head may cover it.
  function scrollTo(list, { offsetTop: top, offsetHeight: height }) {
    list.scrollTop = Math.min(top - height, Math.max(list.scrollTop, top + height - list.clientHeight));
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
    if (cluster !== state.cluster || (cluster && !cluster.shown.includes(state.right))) {
      state.cluster = cluster;
      state.pinned = false;
      if (cluster) choose(cluster.doubtful);
    } else if (cluster) {
      drawJudgement();
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
    state.right = right;
    if (!state.pinned) {
      const kept = keeper(state.cluster, right);
      state.left = kept >= 0 && kept !== right ? kept : 0;
    }
    state.memberPage = Math.floor(right / MEMBERS);
    state.unfolded.clear();
    drawCluster();
    showChange(0);
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
    cluster.prefixes ??= shared(cluster.members);
    const missing = cluster.size - cluster.members.length;
    const parts = [`${number(cluster.size)} ${index.noun}s`, `${number(dropped)} dropped`];
    if (missing) parts.push(`${number(missing)} left out of this page`);
    $("heading").append(element("small", {}, parts.join(" · ")));
    if (cluster.prefixes[1] !== prefixes[1]) $("heading").append(element("small", {}, named(cluster.prefixes[1], prefixes[1])));
    drawMembers();
    drawPair();
  }

  function drawMembers() {
    const { cluster } = state, { members } = cluster;
    const pages = Math.ceil(members.length / MEMBERS);
    const start = state.memberPage * MEMBERS;
    const rows = members.slice(start, start + MEMBERS).map((member, offset) => {
      const position = start + offset;
      const pick = (side, title) => {
        const radio = element("input", { type: "radio", name: side, value: position, "aria-label": `${title}: ${visible.line(member.id)}` });
        radio.checked = state[side] === position;
        return element("td", { class: "pick" }, radio);
      };
      const names = element("td", { class: "names" }, named(member.id, cluster.prefixes[0]));
      if (member.place !== member.id) names.append(element("small", {}, named(member.place, cluster.prefixes[1])));
      const kept = keeper(cluster, position), isDropped = kept !== position;
      names.append(tell(cluster, isDropped ? kept : 0, position));
      const decision = isDropped ? "dropped" : DECISIONS[Math.min(member.decision, 1)];
      const judgement = labels.get(cluster.number, state.left, position);
      const badge = element("td", {}, element("span", { class: `badge ${decision}` }, decision));
      if (judgement && position !== state.left) badge.append(element("span", { class: `verdict ${judgement}` }, judgement));
      if (isDropped && member.kind) badge.append(element("small", { class: "kind" }, member.kind));
      const [distance, similarity] = (kept < 0 ? member.decisive : closeness(cluster, position, isDropped ? kept : 0)) ?? [null, null];
      const bits = element("small", {}, distance === null ? "" : ` ${distance} bit${distance === 1 ? "" : "s"}`);
      const close = element("td", { class: "number" }, ...(position || isDropped ? [share(similarity), bits] : []));
      const characters = element("td", { class: "number characters" }, number(member.characters));
      const picks = [pick("left", pictures ? "Picture A" : "Text A"), pick("right", pictures ? "Picture B" : "Text B")];
      const row = element("tr", { "data-member": position }, ...picks, names, badge, close, characters);
      if (position === state.right) row.setAttribute("aria-current", "true");
      return row;
    });
    $("members").tBodies[0].replaceChildren(...rows);
    scrollTo($("members").parentElement, $("members").querySelector("[aria-current]") ?? $("members").tBodies[0]);
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

  const PANES = [$("left"), $("right")];
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
      $(`${side}-name`).replaceChildren(named(member.id, cluster.prefixes[0]));
      if (pictures) {
        $(`${side}-note`).textContent = text ? "" : "The page does not hold this picture.";
        const [size, src] = text?.[0].split(" ") ?? [];
        const alt = `${visible.line(short(member.id, prefixes[0]))}, ${size} pixels`;
        $(side).replaceChildren(...(text ? [element("img", { src, alt })] : []));
        continue;
      }
      const held = text && !text[1] ? `The page holds the first ${number([...text[0]].length)} of ${number(member.characters)} characters.` : "";
      $(`${side}-note`).textContent = text ? held : "The page does not hold this text.";
      const parts = compared.parts?.[which] ?? [[text?.[0] ?? "", false]];
      const head = (left ?? right)?.[0].slice(0, 4000) ?? "";
      $(side).classList.toggle("code", (head.match(CODE)?.length ?? 0) > head.length / 35);
      $(side).replaceChildren();
      parts.forEach(([string, changed], part) => drawPart($(side), string, changed, part));
    }
    drawJudgement();
    highlight();
  }

  function drawPart(pane, string, changed, part) {
    if (!string) {
      if (changed && compared.parts.some((side) => side[part][0])) pane.append(element("span", { class: "gap", "data-change": part }));
      return;
    }
    const parent = changed ? pane.appendChild(element("mark", { "data-change": part })) : pane;
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

  // Show a difference at the same height in both texts.
  function showChange(at) {
    const places = [...new Set([...document.querySelectorAll("[data-change]")].map((place) => Number(place.dataset.change)))].sort((a, b) => a - b);
    state.change = Math.max(0, Math.min(at, places.length - 1));
    for (const pane of PANES) {
      pane.querySelector(".current")?.classList.remove("current");
      const place = pane.querySelector(`[data-change="${places[state.change]}"]`);
      place?.classList.add("current");
      pane.scrollTop = place ? place.offsetTop - pane.clientHeight / 3 : 0;
    }
    state.gap = PANES[1].scrollTop - PANES[0].scrollTop;
    $("previous-change").disabled = !state.change;
    $("next-change").disabled = state.change >= places.length - 1;
    if (at) $("status").textContent = `Difference ${state.change + 1} of ${places.length}`;
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
    const words = close ? [`similarity ${share(close[1])}`, ...(close[0] === null ? [] : [`distance ${close[0]}`])] : [];
    $("closeness").textContent = [...words, ...changes()].join(" · ");
    const { count } = labels;
    $("export").disabled = !count;
    $("export").textContent = count ? `Export ${number(count)} label${count === 1 ? "" : "s"}` : "Export labels";
    $("unkept").hidden = labels.kept;
    $("undo").disabled = !labels.steps;
    // The run's own choice can always be taken again.
    $("keep").disabled = keeper(cluster, right) === right || (cluster.members[right].decision === 2 && !canKeep(cluster, right));
    for (const [scope, pairs] of Object.entries(SCOPES)) {
      const all = pairs().length;
      $(`of-${scope}`).textContent = number(all);
      for (const button of document.querySelectorAll(`[data-scope=${scope}]`)) button.disabled = !all;
    }
    const lines = dropList();
    $("drop-list").hidden = String(lines) === listed;
    $("drop-list").replaceChildren("Save drop list", element("small", {}, ` ${number(lines.length)} of ${number(index.dropped)} drops`));
  }

  // The pairs that one click judges.
  const foldersOf = ({ members }, a, b) => String([a, b].map((at) => folder(members[at].place)).sort());
  const SCOPES = {
    cluster: () => drops(state.cluster),
    folders: () => {
      const wanted = foldersOf(state.cluster, state.left, state.right);
      return clusters.flatMap((cluster) => drops(cluster).filter(([, a, b]) => foldersOf(cluster, a, b) === wanted));
    },
    shown: () => found.flatMap((cluster) => drops(cluster, cluster.shown)),
  };

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

  function judge(label) {
    const { cluster, left, right } = state;
    if (!cluster || left === right) return;
    const before = labels.get(cluster.number, left, right);
    labels.set([[cluster.number, left, right]], before === label ? undefined : label);
    redraw(before === label ? "Judgement taken back" : `Judged: ${label}`);
  }

  function judgeAll({ scope, all }) {
    labels.set(SCOPES[scope](), all);
    redraw(`All judged: ${all}`);
  }

  // After judgements, or the choice of another keeper.
  function redraw(done) {
    $("status").textContent = done;
    for (const cluster of clusters) cluster.keepers.clear();
    drawList();
    if (!state.cluster) return;
    drawMembers();
    drawJudgement();
  }

  function keepRight() {
    if (!state.cluster || $("keep").disabled) return;
    const { cluster, right } = state, { decision, kept } = cluster.members[right];
    const centre = decision === 2 ? kept : right, before = keeper(cluster, right);
    labels.set([[cluster.number, centre, centre]], right === centre ? undefined : right);
    state.pinned = false;
    redraw("Another one is kept");
    choose(before);
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
    for (const pane of PANES) {
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
    for (const id of [...RANGES, "kind", "judged"]) $(id).value = "";
    if (everything) $("search").value = "";
    search();
  }

  const click = (id, action) => $(id).addEventListener("click", action);
  click("keys", () => $("help").showModal());
  click("export", exportLabels);
  click("drop-list", () => download("drop-list.txt", "text/plain", dropList().map((line) => line + index.lineEnd)));
  click("reset", () => reset(false));
  click("reset-all", () => reset(true));
  const STEPS = { page: turnPage, members: turnMembers, cluster: stepCluster, change: (by) => showChange(state.change + by) };
  for (const [name, step] of Object.entries(STEPS)) {
    click(`previous-${name}`, () => step(-1));
    click(`next-${name}`, () => step(1));
  }
  const undo = () => labels.undo() && redraw("Undone");
  click("undo", undo);
  click("keep", keepRight);
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
  for (const button of document.querySelectorAll("[data-scope]")) button.addEventListener("click", () => judgeAll(button.dataset));
  PANES.forEach((pane, side) => pane.addEventListener("scroll", () => {
    if (pane.matches(":hover, :focus")) PANES[1 - side].scrollTop = pane.scrollTop + (side ? -state.gap : state.gap);
  }));
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
  for (const id of [...RANGES, "kind", "judged", "order"]) $(id).addEventListener("input", search);

  const KEYS = {
    j: () => stepCluster(1),
    ArrowDown: () => stepCluster(1),
    k: () => stepCluster(-1),
    ArrowUp: () => stepCluster(-1),
    n: () => state.cluster && stepMember(1),
    p: () => state.cluster && stepMember(-1),
    d: () => STEPS.change(1),
    D: () => STEPS.change(-1),
    b: keepRight,
    u: undo,
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
    if (typing || (target.matches("input, .text") && key.startsWith("Arrow")) || !Object.hasOwn(KEYS, key)) return;
    event.preventDefault();
    KEYS[key]();
  });

  search();
})();
