/* The panel of a fine-tuned model: marked entities, or a prediction with the scores of its labels. */
const MAX_LABELS = 20;                                  // labels that are shown before a click

/* The spans that the tags mark: {start, end, label, scores}, `end` after the last word. The letters before a label
   say which words are one: B, S and U begin a span, E, L, S and U end it. Without a scheme, a span is one word. */
function findSpans({ tags, scores }, scheme) {
  const spans = [];
  tags.forEach((tag, at) => {
    if (tag === "O") return;
    const [letter, label] = scheme === "none" ? ["S", tag] : [tag[0], tag.slice(2)], last = spans.at(-1);
    if (last?.open && last.end === at && last.label === label && !"BSU".includes(letter)) {
      last.end = at + 1;
      last.scores.push(scores[at]);
    } else spans.push({ start: at, end: at + 1, label, scores: [scores[at]] });
    spans.at(-1).open = !"ELSU".includes(letter);
  });
  return spans;
}

function taggedText({ words }, spans, { labels, scheme }) {
  const types = [...new Set(scheme === "none" ? labels : labels.map(label => label.slice(2)))];
  const box = make("p", { className: "prediction" });
  let end = 0;
  for (const span of spans) {
    const title = `${span.label} ${span.scores.map(formatProbability).join(", ")}`.trim();
    const mark = make("mark", { className: "entity", title },
      words.slice(span.start, span.end).join(" ") + "\u00a0", make("small", { textContent: span.label }));
    mark.style.setProperty("--hue", 30 + 137.5 * types.indexOf(span.label));  // neighbors in the list differ most
    box.append(words.slice(end, span.start).map(word => word + " ").join(""), mark, " ");
    end = span.end;
  }
  box.append(words.slice(end).join(" "));
  return box;
}

function predictionText(one, spans) {
  if ("tags" in one) {
    const entities = spans.map(span => `${span.label} ${one.words.slice(span.start, span.end).join(" ")}`);
    return entities.join(", ") || "(no entity)";
  }
  if ("answer" in one) return one.answer || "(no answer)";
  if ("labels" in one) return one.labels.join(", ") || "(no label)";
  return String(one.label ?? one.value);
}

function predictPanel({ model, response: { predictions: [one] } }) {
  const spans = "tags" in one ? findSpans(one, model.scheme) : [], text = predictionText(one, spans);
  announce(`${model.name}: ${text}`);
  if ("tags" in one) {
    const hint = "If punctuation marks are words in the training data, put spaces around them here, too.";
    return card(model, taggedText(one, spans, model), soft("Words are what is between spaces. " + hint));
  }
  const labels = Object.entries(one.scores ?? {}).sort((a, b) => b[1] - a[1]);
  const tables = labels.length ? [labelTable(labels.slice(0, MAX_LABELS))] : [], rest = labels.slice(MAX_LABELS);
  if (rest.length) {                                    // of several labels, the scores do not add up to 1
    const share = "labels" in one ? `each at most ${percent(rest[0][1])}`
      : `${percent(rest.reduce((sum, [, score]) => sum + score, 0))} together`;
    const textContent = `${rest.length} more label${rest.length > 1 ? "s" : ""}: ${share}`;
    const summary = make("summary", { className: "soft", textContent });
    tables.push(make("details", {}, summary, labelTable(rest)));
  }
  return card(model, make("p", { className: "prediction", textContent: text }), ...tables);
}

function labelTable(labels) {
  const row = ([label, score]) => tableRow(make("th", { scope: "row", textContent: label }), score);
  return make("table", {}, make("tbody", {}, ...labels.map(row)));
}
