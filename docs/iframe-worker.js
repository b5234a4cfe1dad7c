// Search runs in a worker, which browsers do not start for a page that was opened as a file: there it runs in a frame.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = frame.contentWindow;
      inside.postMessage = (data) => {
        const event = new MessageEvent("message", { data });
        this.dispatchEvent(event);
        if (this.onmessage) this.onmessage(event);
      };
      const script = inside.document.createElement("script");
      script.src = new URL(url, location.href).href;
      const loaded = new Promise((resolve) => { script.onload = resolve; });
      inside.document.body.append(script);
      this.postMessage = (data) => loaded.then(() => inside.onmessage(new MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
}
