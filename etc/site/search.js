// The search of search.html: all of it in the page, since a browser gives no file to the script of a page without a server.
jQuery(() => {
  const input = document.getElementById("mkdocs-search-query"), results = document.getElementById("mkdocs-search-results");
  if (!results) return;
  lunr.tokenizer.separator = /[^\w]+/; // pasted errors have quotes, colons and paths
  const sections = new Map(search_index.docs.map((section) => [section.location, section]));
  const index = lunr(function () {
    this.ref("location");
    this.field("title", { boost: 8 });
    this.field("text");
    search_index.docs.filter((section) => section.location.includes("#")).forEach((section) => this.add(section));
  });
  // Headings that share one text stand above it.
  search_index.docs.reduceRight((text, section) => (section.text = section.text || text), "");
  const show = (text) => {
    const words = lunr.tokenizer(text).filter((word) => word.str);
    const hits = index.query((query) => words.forEach((word) => {
      query.term(word.str, { boost: 10 });
      query.term(word.str, { wildcard: lunr.Query.wildcard.TRAILING, usePipeline: false });
    }));
    results.replaceChildren(...hits.slice(0, 20).map((hit) => {
      const section = sections.get(hit.ref), item = document.createElement("article"), link = document.createElement("a");
      const page = sections.get(hit.ref.replace(/#.*/, ""));
      link.href = hit.ref;
      link.textContent = section.title;
      item.append(link, ` in ${page.title}`, document.createElement("p"));
      const at = Math.max(0, section.text.toLowerCase().indexOf((words[0] || "").toString()) - 60);
      item.lastChild.textContent = section.text.slice(at, at + 220);
      return item;
    }));
    if (!hits.length) results.textContent = results.dataset.noResultsText;
  };
  input.value = new URLSearchParams(location.search).get("q") || "";
  input.addEventListener("input", () => show(input.value));
  show(input.value);
});
