"use strict";
const $ = id => document.getElementById(id);
const MAX_LISTED = 24;                                  // flagged tokens in the list, those of the highest probability
let server = null, accessToken = "", results = [], currentText = "", runNumber = 0, examples = [], example = 0;

function make(tag, properties = {}, ...children) {     // text is added as text, never as HTML
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const formatProbability = p => p.toFixed(2).replace(/^0/, "");
const percent = p => p < .0005 ? "<0.1%" : (100 * p).toFixed(p < .0995 ? 1 : 0) + "%";
const threshold = () => Number($("threshold").value);
const announce = message => { $("status").textContent = message; };
function showError(message) { $("alert").textContent = message; $("alert").hidden = !message; }

async function request(path, body) {
  const headers = accessToken ? { Authorization: "Bearer " + accessToken } : {};
  if (body) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body) });
  } catch { throw new Error("The server does not respond. Is it still running?"); }
  const content = await response.json().catch(() => ({}));
  if (!response.ok) throw Object.assign(new Error(content.error || "The server responded with status " + response.status), { status: response.status });
  return content;
}

async function connect() {
  try { server = await request("models"); } catch (error) {
    $("login").hidden = error.status !== 401;
    showError(error.status === 401 ? (accessToken ? "Wrong access token." : "") : error.message);
    if (error.status === 401) $("access-token").focus();
    return;
  }
  showError("");
  const [first] = server.models, supports = operation => server.models.some(model => model.can.includes(operation));
  $("login").hidden = true;
  $("footer").textContent = `electra ${server.electra} · ${server.models.map(model => model.name).join(" and ")}`;
  document.title = "electra · " + server.models.map(model => model.name).join(" | ");
  if (!supports("score") && !supports("predict")) {
    return showError(`${first.name} can neither score nor predict. It supports ${first.can.join(", ")}: see openapi.json.`);
  }
  $("form").hidden = false;
  const predicts = !supports("score");
  if (predicts) {
    $("subtitle").textContent = "What does the model predict?";
    $("run-button").textContent = "Predict";
    $("second-text").hidden = !first.pairs;
    if (first.task === "answering") { $("text-label").textContent = "Question"; $("pair-label").textContent = "Passage"; }
  }
  examples = server.models.find(model => model.can.includes(predicts ? "predict" : "score")).examples;
  $("example").hidden = examples.length < 2;
  showExample(0);
}

function showExample(number) {
  example = number;
  [$("text").value, $("pair").value = ""] = examples[number];
  return run();
}

async function run() {
  const number = ++runNumber, text = $("text").value;
  if (!text.trim()) return showError("Enter a text first.");
  $("run-button").disabled = true;
  try {
    const newResults = await Promise.all(server.models.map(async (model, index) => {
      const operation = ["score", "predict"].find(name => model.can.includes(name));
      if (!operation) return { model, index };
      const input = operation === "predict" && model.pairs ? [text, $("pair").value] : text;
      const response = await request(operation, { texts: [input], model: index + 1 });
      return { model, index, operation, response, tokens: [] };
    }));
    if (number !== runNumber) return;                   // a later run has started
    currentText = text; results = newResults;
    showError("");
    show();
  } catch (error) { showError(error.message); } finally { if (number === runNumber) $("run-button").disabled = false; }
}

async function runAndScroll() {                         // the result may be below the end of a narrow screen
  await run();
  const top = $("panels").firstElementChild?.getBoundingClientRect().top;
  if (top > innerHeight * .75) $("panels").scrollIntoView();
}

/* The words to show, or all tokens: {start, end, text, p, piece}. Each has the highest probability of its tokens, and
   `piece`, the token that has it: {number, start, end, text}. Offsets count code points, as in Python. Tokens that are pieces
   of one character are always one. Electric's log-probabilities become 1 - probability. */
function buildTokens(text, { results: [result] }, pieces) {
  const points = Array.from(text), tokens = [], cut = (start, end) => points.slice(start, end).join("");
  const values = result.probabilities || result.log_probabilities.map(log => 1 - Math.exp(Math.min(0, log)));
  result.offsets.forEach(([start, end], number) => {
    const last = tokens.at(-1), p = values[number], unknown = result.unknown[number], piece = { number, start, end, text: cut(start, end) };
    if (last && (start < last.end || (result.continues[number] && !pieces))) {
      last.end = Math.max(last.end, end);
      last.unknown ||= unknown;
      if (p > last.p) Object.assign(last, { p, piece });
    } else tokens.push({ start, end, p, piece, unknown });
  });
  for (const token of tokens) token.text = cut(token.start, token.end);
  return tokens.filter(token => token.text.trim());
}

function show() {
  const scored = results.filter(result => result.operation === "score");
  for (const result of scored) result.tokens = buildTokens(currentText, result.response, $("pieces").checked);
  $("panels").replaceChildren(...results.map(result => ({ score: scorePanel, predict: predictPanel })[result.operation]?.(result)
    || make("section", { className: "card" }, make("h2", { textContent: result.model.name }), make("p", { textContent: describeOperations(result) }))));
  for (const id of ["controls", "legend"]) $(id).hidden = !scored.length;
  $("pieces").parentElement.hidden = !scored.some(result => result.response.results[0].continues.some(Boolean));
  $("copy").hidden = false;
  if (scored.length) { updateFlags(); announce($("counts").textContent); }
}

function describeOperations({ model, index }) {         // of a model that can neither score nor predict
  const names = { embed: "embed texts", proposals: "propose tokens" }, operations = model.can.filter(operation => names[operation]);
  const text = `This model can only ${operations.map(operation => names[operation]).join(" and ")}: POST ${operations.map(operation => "/" + operation).join(", ")} with "model": ${index + 1}.`;
  return text + (operations.includes("proposals") ? " To see its proposals here when you click a token, start the server with: electra serve RUN --generator MODEL" : "");
}

function scorePanel(result) {
  const points = Array.from(currentText), box = make("div", { className: "tokens", role: "group", "aria-label": `Words, scored by ${result.model.name}` });
  let end = 0;
  for (const token of result.tokens) {
    box.append(points.slice(end, token.start).join(""));
    token.button = make("button", { type: "button", className: "token", tabIndex: -1, textContent: token.text, "aria-expanded": "false" });
    token.button.style.setProperty("--p", token.p);
    token.button.classList.toggle("unknown", token.unknown);
    token.button.dataset.figure = formatProbability(token.p);
    token.button.title = token.unknown ? `${token.text}: not in the vocabulary` : `${token.text} ${formatProbability(token.p)}`;
    token.button.addEventListener("click", () => toggleDetails(result, token));
    box.append(token.button);
    end = token.end;
  }
  box.append(points.slice(end).join(""));
  box.addEventListener("keydown", event => handleKey(event, result));
  if (result.tokens.length) result.tokens[0].button.tabIndex = 0;
  result.flagged = make("ul", { className: "flagged", "aria-label": "Flagged words" });
  result.count = make("p", { className: "soft" });
  result.details = make("div", { className: "details", hidden: true });
  const unknown = result.response.results[0].unknown, missing = unknown.filter(Boolean).length;
  const warning = make("p", { className: "soft", hidden: !missing, textContent:
    `${missing} of ${unknown.length} tokens (with dotted lines) ${missing === 1 ? "is" : "are"} not in the vocabulary of this model: their figures say nothing.` });
  return make("section", { className: "card", "aria-label": result.model.name }, make("h2", { textContent: result.model.name }),
    box, warning, result.count, result.flagged, result.details);
}

function focusToken(result, token) {                    // Tab reaches one token of a panel, the arrow keys the others
  for (const other of result.tokens) other.button.tabIndex = other === token ? 0 : -1;
  token.button.focus();
}

function handleKey(event, result) {
  const tokens = result.tokens, at = tokens.findIndex(token => token.button === document.activeElement), over = token => token.p >= threshold();
  const to = { ArrowRight: () => tokens[at + 1], ArrowLeft: () => tokens[at - 1], Home: () => tokens[0], End: () => tokens.at(-1),
    ArrowDown: () => tokens.slice(at + 1).find(over), ArrowUp: () => tokens.slice(0, Math.max(at, 0)).findLast(over),
    Escape: () => { closeDetails(result); return tokens[at]; } }[event.key];
  if (!to) return;
  event.preventDefault();
  const token = to();
  if (token) focusToken(result, token);
}

function updateFlags() {
  const from = threshold(), scored = results.filter(result => result.operation === "score"), counts = [];
  $("threshold-value").textContent = formatProbability(from);
  for (const result of scored) {
    const over = result.tokens.filter(token => token.p >= from);
    for (const token of result.tokens) {
      const flagged = token.p >= from;
      token.button.classList.toggle("over", flagged);
      const value = token.unknown ? "not in the vocabulary" : `${percent(token.p)} likely replaced`;
      token.button.setAttribute("aria-label", `${token.text}, ${value}${flagged ? ", flagged" : ""}`);
    }
    const listed = over.toSorted((a, b) => b.p - a.p).slice(0, MAX_LISTED), more = over.length - listed.length;
    result.flagged.replaceChildren(...listed.map(token => make("li", {}, make("button", { type: "button", textContent: `${token.text} ${formatProbability(token.p)}`,
      "aria-label": `Go to ${token.text}, ${percent(token.p)}`, onclick: () => focusToken(result, token) }))),
      ...(more ? [make("li", { className: "soft more", textContent: `and ${more.toLocaleString("en")} more` })] : []));
    result.count.textContent = scored.length > 1 ? `${over.length} of ${result.tokens.length} words flagged` : "";
    counts.push(`${scored.length > 1 ? result.model.name + ": " : ""}${over.length} of ${result.tokens.length} words flagged`);
  }
  if (scored.length === 2) counts.push(`${countShared(...scored, from)} flagged by both`);
  $("counts").textContent = counts.join(" · ");
  $("threshold").setAttribute("aria-valuetext", `${formatProbability(from)}, ${$("counts").textContent}`);
  drawHistogram(scored.flatMap(result => result.tokens), from);
}

function countShared(one, other, from) {                // by characters, because the models may have different tokens
  const flagged = result => result.tokens.filter(token => token.p >= from);
  return flagged(one).filter(a => flagged(other).some(b => a.start < b.end && b.start < a.end)).length;
}

function drawHistogram(tokens, from) {
  const counts = new Array(25).fill(0);
  for (const token of tokens) counts[Math.min(24, Math.floor(token.p * 25))]++;
  const most = Math.log1p(Math.max(1, ...counts));      // logarithmic, because most tokens are near 0
  $("histogram").replaceChildren(...counts.map((count, bin) => {
    const bar = make("i", { className: (bin + .5) / 25 >= from ? "over" : "" });
    bar.style.height = 100 * Math.log1p(count) / most + "%";
    return bar;
  }));
}

function closeDetails(result) {
  result.details.hidden = true;
  for (const token of result.tokens) token.button.setAttribute("aria-expanded", "false");
}

async function toggleDetails(result, token) {
  const wasOpen = token.button.getAttribute("aria-expanded") === "true";
  closeDetails(result);
  focusToken(result, token);
  if (wasOpen) return;
  token.button.setAttribute("aria-expanded", "true");
  const { piece } = token, part = piece.text === token.text ? "" : `, by its piece “${piece.text}”`;
  const title = `“${token.text}”: ${percent(token.p)} likely replaced${part}`;
  const fill = (...parts) => { result.details.replaceChildren(make("h3", { textContent: title }), ...parts); result.details.hidden = false; };
  if (!result.model.can.includes("proposals")) {
    fill(make("p", { className: "soft", textContent: "There is no generator that proposes other tokens. Start the server with: electra serve RUN --generator MODEL" }));
    return announce(title);
  }
  fill(make("p", { className: "soft", textContent: "Loading the proposals of the generator…" }));
  try {
    const { places: [place] } = await request("proposals", { text: currentText, tokens: [token.piece.number], count: 8, model: result.index + 1 });
    if (token.button.getAttribute("aria-expanded") !== "true") return;
    const body = make("tbody", {}, ...place.proposals.map(one => proposalRow(piece, one)));
    fill(make("p", { className: "soft", textContent: `The generator expects these tokens here. It gives “${piece.text}” ${percent(place.probability)}.` }),
      make("table", {}, make("thead", {}, make("tr", {}, ...["Token", "", "Probability"].map((name, at) =>
        make(at === 1 ? "td" : "th", { textContent: name, className: at === 2 ? "figure" : "", ...(at === 1 ? {} : { scope: "col" }) })))), body),
      ...(place.proposals.some(one => /^##./.test(one.token)) ? [make("p", { className: "soft", textContent: "## continues the word before." })] : []));
    announce(`${title}. The generator expects: ${place.proposals.slice(0, 5).map(one => `${one.token.trim()} ${percent(one.probability)}`).join(", ")}`);
  } catch (error) { fill(make("p", { textContent: error.message })); announce(error.message); }
}

function proposalRow(piece, { token: proposed, probability }) {
  const word = proposed.replace(/^##(?=.)/, "").trimStart() || proposed, bar = make("div", { className: "bar" });
  bar.style.setProperty("--p", probability);
  const insert = make("button", { type: "button", textContent: proposed, title: "Insert it and score again", "aria-label": `Insert ${proposed}, ${percent(probability)}` });
  insert.addEventListener("click", () => {
    const points = Array.from(currentText);
    $("text").value = points.slice(0, piece.start).join("") + word + points.slice(piece.end).join("");
    run().then(() => $("text").focus());
  });
  return make("tr", {}, make("td", {}, insert), make("td", { "aria-hidden": "true" }, bar), make("td", { className: "figure", textContent: percent(probability) }));
}

/* The spans that the tags mark: {start, end, label, scores}, `end` after the last word. The letters before a label say which
   words are one: B, S and U begin a span, E, L, S and U end it. Without a scheme each tag is a label of one word. */
function findSpans({ tags, scores }, scheme) {
  const spans = [];
  tags.forEach((tag, at) => {
    if (tag === "O") return;
    const letter = scheme === "none" ? "S" : tag[0], label = scheme === "none" ? tag : tag.slice(2), last = spans.at(-1);
    if (last?.open && last.end === at && last.label === label && !"BSU".includes(letter)) {
      last.end = at + 1;
      last.scores.push(scores[at]);
    } else spans.push({ start: at, end: at + 1, label, scores: [scores[at]] });
    spans.at(-1).open = !"ELSU".includes(letter);
  });
  return spans;
}

function taggedText({ words }, spans, { labels, scheme }) {
  const types = [...new Set(scheme === "none" ? labels : labels.map(label => label.slice(2)))], box = make("p", { className: "prediction" });
  let end = 0;
  for (const span of spans) {
    const mark = make("mark", { className: "entity", title: `${span.label} ${span.scores.map(formatProbability).join(", ")}`.trim() },
      words.slice(span.start, span.end).join(" ") + "\u00a0", make("small", { textContent: span.label }));
    mark.style.setProperty("--hue", 30 + 137.5 * types.indexOf(span.label));  // neighbors in the list differ most
    box.append(words.slice(end, span.start).map(word => word + " ").join(""), mark, " ");
    end = span.end;
  }
  box.append(words.slice(end).join(" "));
  return box;
}

function predictPanel({ model, response }) {
  const [one] = response.predictions, panel = make("section", { className: "card", "aria-label": model.name }, make("h2", { textContent: model.name }));
  const spans = "tags" in one ? findSpans(one, model.scheme) : [], words = span => one.words.slice(span.start, span.end).join(" ");
  const prediction = "tags" in one ? spans.map(span => `${span.label} ${words(span)}`).join(", ") || "(no entity)" : "answer" in one ? one.answer || "(no answer)" : String(one.label ?? one.value ?? (one.labels.join(", ") || "(no label)"));
  panel.append("tags" in one ? taggedText(one, spans, model) : make("p", { className: "prediction", textContent: prediction }));
  if ("tags" in one) panel.append(make("p", { className: "soft", textContent: "Words are what is between spaces. If punctuation marks are words in the training data, put spaces around them here, too." }));
  if (one.scores && !Array.isArray(one.scores)) {
    panel.append(make("table", {}, make("tbody", {}, ...Object.entries(one.scores).sort((a, b) => b[1] - a[1]).slice(0, 20).map(([label, score]) => {
      const bar = make("div", { className: "bar" });
      bar.style.setProperty("--p", score);
      return make("tr", {}, make("th", { scope: "row", textContent: label }), make("td", { "aria-hidden": "true" }, bar), make("td", { className: "figure", textContent: percent(score) }));
    }))));
  }
  announce(`${model.name}: ${prediction}`);
  return panel;
}

async function copyJson() {
  const models = results.filter(result => result.response).map(({ model, operation, response, tokens }) => operation === "score"
    ? { model: model.name, objective: response.objective, ...response.results[0], flagged: tokens.filter(token => token.p >= threshold()).map(token => token.piece.number) }
    : { model: model.name, ...response.predictions[0] });
  const json = JSON.stringify({ text: currentText, threshold: threshold(), models }, null, 1);
  try { await navigator.clipboard.writeText(json); } catch {  // browsers have no clipboard API without HTTPS
    const area = make("textarea", { value: json });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
    $("copy").focus();
  }
  announce("Copied as JSON.");
  $("copy").textContent = "Copied";
  setTimeout(() => { $("copy").textContent = "Copy as JSON"; }, 2000);
}

$("login").addEventListener("submit", event => { event.preventDefault(); accessToken = $("access-token").value.trim(); connect(); });
$("form").addEventListener("submit", event => { event.preventDefault(); runAndScroll(); });
$("form").addEventListener("keydown", event => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) runAndScroll(); });
$("pieces").addEventListener("change", () => { show(); $("pieces").focus(); });
$("example").addEventListener("click", () => showExample((example + 1) % examples.length));
$("threshold").addEventListener("input", updateFlags);
$("copy").addEventListener("click", copyJson);
connect();
