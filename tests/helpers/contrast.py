"""WCAG's contrast of the texts of a page."""

CONTRASTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const paint = colors => { canvas.clearRect(0, 0, 1, 1);
    for (const color of colors) { canvas.fillStyle = color; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3); };
  const light = rgb => { const [r, g, b] = rgb.map(v => v / 255)
    .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const found = [];
  for (const element of document.querySelectorAll('body *')) {
    if (!element.checkVisibility()) continue;
    if (![...element.childNodes].some(node => node.nodeType === 3 && node.data.trim())) continue;
    const grounds = [];
    for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const ground = paint(grounds), ink = paint([...grounds, getComputedStyle(element).color]);
    const [a, b] = [light(ground), light(ink)].sort((x, y) => y - x);
    const name = element.tagName + ' ' + element.className + ' ' + element.textContent.trim().slice(0, 30);
    found.push([name, (a + .05) / (b + .05)]);
    if (element.classList.contains('over')) {
      const figure = paint([...grounds, getComputedStyle(element, '::after').color]);
      const [c, d] = [light(ground), light(figure)].sort((x, y) => y - x);
      found.push(['figure of ' + element.textContent, (c + .05) / (d + .05)]);
    }
  }
  return found; }"""
"""JavaScript: the contrast of each element that has text, and of the figures of flagged words."""
