"use strict";
const $ = id => document.getElementById(id);
const MAX_LISTED = 24;                                  // flagged tokens in the list, the most probable ones
const ADD_GENERATOR = "start the server with: electra serve RUN --generator MODEL";
let server = null, accessToken = "", results = [], currentText = "", runNumber = 0;
let examples = [], example = 0;

function make(tag, properties = {}, ...children) {     // text is added as text, never as HTML
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in element) element[name] = value; else element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const soft = textContent => make("p", { className: "soft", textContent });
const card = (model, ...parts) => make("section", { className: "card", "aria-label": model.name },
  make("h2", { textContent: model.name }), ...parts);
const formatProbability = p => p.toFixed(2).replace(/^0/, "");
const percent = p => p < .0005 ? "<0.1%" : p > .9995 && p < 1 ? ">99.9%"
  : (100 * p).toFixed(p < .0995 || (p >= .995 && p < 1) ? 1 : 0) + "%";
const threshold = () => Number($("threshold").value);
const isFlagged = token => !token.unknown && token.p >= threshold();
const describe = token => token.unknown ? "not in the vocabulary" : `${percent(token.p)} likely replaced`;
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
  if (response.ok) return content;
  const message = content.error || "The server responded with status " + response.status;
  throw Object.assign(new Error(message), { status: response.status });
}

async function connect() {
  try { server = await request("models"); } catch (error) {
    $("login").hidden = error.status !== 401;
    if (error.status !== 401) return showError(error.message);
    showError(accessToken ? "Wrong access token." : "");
    return $("access-token").focus();
  }
  showError("");
  const [first] = server.models;
  const supports = operation => server.models.some(model => model.can.includes(operation));
  $("login").hidden = true;
  $("footer").textContent = `electra ${server.electra} · ${server.models.map(model => model.name).join(" and ")}`;
  document.title = "electra · " + server.models.map(model => model.name).join(" | ");
  if (!supports("score") && !supports("predict")) {
    return showError(`${first.name} can neither score nor predict. `
      + `It supports ${first.can.join(", ")}: see openapi.json.`);
  }
  $("form").hidden = false;
  const predicts = !supports("score");
  if (predicts) {
    $("subtitle").textContent = "What does the model predict?";
    $("run-button").textContent = "Predict";
    $("second-text").hidden = !first.pairs;
    if (first.pairs) $("text-label").textContent = "First text";
    if (first.task === "answering") {
      [$("text-label").textContent, $("pair-label").textContent] = ["Question", "Passage"];
    }
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
  } catch (error) { showError(error.message); }
  if (number === runNumber) $("run-button").disabled = false;
}

async function runAndScroll() {                         // the result may be below the end of a narrow screen
  await run();
  const top = $("panels").firstElementChild?.getBoundingClientRect().top;
  if (top > innerHeight * .75) $("panels").scrollIntoView();
}

/* The words to show, or all tokens: {start, end, text, p, piece, unknown}. Each has the highest probability of its
   tokens, and `piece`, the token that has it: {number, start, end, text}. A word is unknown if a token of it is;
   then `piece` is that token. Tokens that are pieces of one character are always one. Offsets count code points,
   as in Python. Electric's log-probabilities become 1 - probability. */
function buildTokens(text, { results: [result] }, pieces) {
  const points = Array.from(text), tokens = [], cut = (start, end) => points.slice(start, end).join("");
  const values = result.probabilities || result.log_probabilities.map(log => 1 - Math.exp(Math.min(0, log)));
  result.offsets.forEach(([start, end], number) => {
    const last = tokens.at(-1), p = values[number], unknown = result.unknown[number];
    const piece = { number, start, end, text: cut(start, end) };
    if (last && (start < last.end || (result.continues[number] && !pieces))) {
      last.end = Math.max(last.end, end);
      if (!last.unknown && (unknown || p > last.p)) Object.assign(last, { p, piece, unknown });
    } else tokens.push({ start, end, p, piece, unknown });
  });
  for (const token of tokens) token.text = cut(token.start, token.end);
  return tokens.filter(token => token.text.trim());
}

function show() {
  const scored = results.filter(result => result.operation === "score");
  for (const result of scored) result.tokens = buildTokens(currentText, result.response, $("pieces").checked);
  const panels = { score: scorePanel, predict: predictPanel };
  $("panels").replaceChildren(...results.map(result => (panels[result.operation] || otherPanel)(result)));
  for (const id of ["controls", "legend"]) $(id).hidden = !scored.length;
  $("pieces").parentElement.hidden = !scored.some(result => result.response.results[0].continues.some(Boolean));
  $("copy").hidden = false;
  if (scored.length) { updateFlags(); announce($("counts").textContent); }
}

function otherPanel({ model, index }) {                 // of a model that can neither score nor predict
  const names = { embed: "embed texts", proposals: "propose tokens" };
  const operations = model.can.filter(operation => names[operation]);
  const paths = operations.map(operation => "/" + operation).join(", ");
  let text = `This model can only ${operations.map(operation => names[operation]).join(" and ")}: `
    + `POST ${paths} with "model": ${index + 1}.`;
  if (operations.includes("proposals")) text += ` To see its proposals when you click a token, ${ADD_GENERATOR}`;
  return card(model, make("p", { textContent: text }));
}

function scorePanel(result) {
  const points = Array.from(currentText), label = `Words, scored by ${result.model.name}`;
  const box = make("div", { className: "tokens", role: "group", "aria-label": label });
  let end = 0;
  for (const token of result.tokens) {
    token.button = make("button", { type: "button", className: "token", tabIndex: -1, "aria-expanded": "false",
      textContent: token.text, title: `${token.text}: ${describe(token)}` });
    token.button.style.setProperty("--p", token.p);
    token.button.classList.toggle("unknown", token.unknown);
    token.button.dataset.figure = formatProbability(token.p);
    token.button.addEventListener("click", () => toggleDetails(result, token));
    box.append(points.slice(end, token.start).join(""), token.button);
    end = token.end;
  }
  box.append(points.slice(end).join(""));
  box.addEventListener("keydown", event => handleKey(event, result));
  if (result.tokens.length) result.tokens[0].button.tabIndex = 0;
  result.flagged = make("ul", { className: "flagged", "aria-label": "Flagged words" });
  result.count = soft("");
  result.details = make("div", { className: "details", hidden: true });
  const warning = soft(describeUnknown(result.response.results[0]));
  return card(result.model, box, warning, result.count, result.flagged, result.details);
}

function describeUnknown({ unknown }) {
  const count = unknown.filter(Boolean).length;
  if (!count) return "";
  const [are, figures, words] = count === 1 ? ["is", "its figure says", "its word (dotted line) is"]
    : ["are", "their figures say", "their words (dotted lines) are"];
  return `${count} of ${unknown.length} tokens ${are} not in the vocabulary of this model: ${figures} nothing, `
    + `and ${words} not flagged.`;
}

function focusToken(result, token) {                    // Tab reaches one token of a panel, arrow keys the others
  for (const other of result.tokens) other.button.tabIndex = other === token ? 0 : -1;
  token.button.focus();
}

function handleKey(event, result) {
  const { tokens } = result, at = tokens.findIndex(token => token.button === document.activeElement);
  const to = {
    ArrowRight: () => tokens[at + 1], ArrowLeft: () => tokens[at - 1],
    Home: () => tokens[0], End: () => tokens.at(-1),
    ArrowDown: () => tokens.slice(at + 1).find(isFlagged),
    ArrowUp: () => tokens.slice(0, Math.max(at, 0)).findLast(isFlagged),
    Escape: () => { closeDetails(result); return tokens[at]; },
  }[event.key];
  if (!to) return;
  event.preventDefault();
  const token = to();
  if (token) focusToken(result, token);
}

function updateFlags() {
  const scored = results.filter(result => result.operation === "score"), counts = [];
  $("threshold-value").textContent = formatProbability(threshold());
  for (const result of scored) {
    const flagged = result.tokens.filter(isFlagged);
    for (const token of result.tokens) {
      token.button.classList.toggle("over", isFlagged(token));
      const label = `${token.text}, ${describe(token)}${isFlagged(token) ? ", flagged" : ""}`;
      token.button.setAttribute("aria-label", label);
    }
    listFlagged(result, flagged);
    const count = `${flagged.length} of ${result.tokens.length} words flagged`;
    result.count.textContent = scored.length > 1 ? count : "";
    counts.push(scored.length > 1 ? `${result.model.name}: ${count}` : count);
  }
  if (scored.length === 2) counts.push(`${countShared(...scored)} flagged by both`);
  $("counts").textContent = counts.join(" · ");
  $("threshold").setAttribute("aria-valuetext", `${formatProbability(threshold())}, ${$("counts").textContent}`);
  drawHistogram(scored.flatMap(result => result.tokens));
}

function listFlagged(result, flagged) {
  const listed = flagged.toSorted((a, b) => b.p - a.p).slice(0, MAX_LISTED), more = flagged.length - listed.length;
  result.flagged.replaceChildren(...listed.map(token => make("li", {}, make("button", {
    type: "button",
    textContent: `${token.text} ${formatProbability(token.p)}`,
    "aria-label": `Go to ${token.text}, ${percent(token.p)}`,
    onclick: () => focusToken(result, token),
  }))));
  if (more) result.flagged.append(make("li", { className: "soft more" }, `and ${more.toLocaleString("en")} more`));
}

function countShared(one, other) {                      // by characters, because the tokens may differ
  const others = other.tokens.filter(isFlagged);
  return one.tokens.filter(isFlagged).filter(a => others.some(b => a.start < b.end && b.start < a.end)).length;
}

function drawHistogram(tokens) {
  const counts = new Array(25).fill(0);
  for (const token of tokens) if (!token.unknown) counts[Math.min(24, Math.floor(token.p * 25))]++;
  const most = Math.log1p(Math.max(1, ...counts));      // logarithmic, because most tokens are near 0
  $("histogram").replaceChildren(...counts.map((count, bin) => {
    const bar = make("i", { className: (bin + .5) / 25 >= threshold() ? "over" : "" });
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
  const { piece, unknown } = token;
  const part = piece.text === token.text ? "" : `, ${unknown ? "because of" : "by"} its piece “${piece.text}”`;
  const title = `“${token.text}”: ${describe(token)}${part}`;
  const fill = (...parts) => result.details.replaceChildren(make("h3", { textContent: title }), ...parts);
  result.details.hidden = false;
  if (!result.model.can.includes("proposals")) {
    fill(soft(`There is no generator. For proposals of other tokens, ${ADD_GENERATOR}`));
    return announce(title);
  }
  fill(soft("Loading the proposals of the generator…"));
  try {
    const body = { text: currentText, tokens: [piece.number], count: 8, model: result.index + 1 };
    const { places: [{ probability, proposals }] } = await request("proposals", body);
    if (token.button.getAttribute("aria-expanded") !== "true") return;
    const own = unknown ? "" : ` It gives “${piece.text}” ${percent(probability)}.`;
    fill(soft("The generator expects these tokens here." + own), proposalTable(piece, proposals));
    const continues = proposals.some(one => /^##./.test(one.token));
    if (continues) result.details.append(soft("## continues the word before."));
    const best = proposals.slice(0, 5).map(one => `${one.token.trim()} ${percent(one.probability)}`).join(", ");
    announce(`${title}. The generator expects: ${best}`);
  } catch (error) { fill(make("p", { textContent: error.message })); announce(error.message); }
}

function proposalTable(piece, proposals) {
  const head = make("tr", {}, make("th", { textContent: "Token", scope: "col" }), make("td"),
    make("th", { textContent: "Probability", scope: "col", className: "figure" }));
  const rows = proposals.map(one => tableRow(make("td", {}, insertButton(piece, one)), one.probability));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function insertButton(piece, { token: proposed, probability }) {
  const word = proposed.replace(/^##(?=.)/, "").trimStart() || proposed;
  return make("button", {
    type: "button",
    textContent: proposed,
    title: "Insert it and score again",
    "aria-label": `Insert ${proposed}, ${percent(probability)}`,
    onclick: () => {
      const points = Array.from(currentText);
      $("text").value = points.slice(0, piece.start).join("") + word + points.slice(piece.end).join("");
      run().then(() => $("text").focus());
    },
  });
}

function tableRow(first, share) {                       // a cell, then the share as a bar and as a figure
  const bar = make("div", { className: "bar" });
  bar.style.setProperty("--p", share);
  return make("tr", {}, first, make("td", { "aria-hidden": "true" }, bar),
    make("td", { className: "figure", textContent: percent(share) }));
}

function copiedResult({ model, operation, response, tokens }) {
  if (operation !== "score") return { model: model.name, ...response.predictions[0] };
  const flagged = tokens.filter(isFlagged).map(token => token.piece.number), [scores] = response.results;
  return { model: model.name, objective: response.objective, ...scores, flagged };
}

async function copyJson() {
  const models = results.filter(result => result.response).map(copiedResult);
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

$("login").addEventListener("submit", event => {
  event.preventDefault();
  accessToken = $("access-token").value.trim();
  connect();
});
$("form").addEventListener("submit", event => { event.preventDefault(); runAndScroll(); });
$("form").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) runAndScroll();
});
$("pieces").addEventListener("change", () => { show(); $("pieces").focus(); });
$("example").addEventListener("click", () => showExample((example + 1) % examples.length));
$("threshold").addEventListener("input", updateFlags);
$("copy").addEventListener("click", copyJson);
connect();
