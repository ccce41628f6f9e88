/** What the views share: a root that keeps its keys, follows the theme and the clock, and is drawn once in a frame. */

import { h, setAttribute, setAttributes, setText } from "./dom";
import { hidingRule } from "./hiding";
import { keepKeys } from "./keys";
import { isDark, onThemeChange, type Palette, palette } from "./theme";

const CLOCK_MS = 1000;

export abstract class LiveView {
  protected readonly root: HTMLElement;
  private colours: Palette | null = null;
  private removeThemeListener = () => {};
  private clock: ReturnType<typeof setInterval> | undefined;
  private frame = 0;
  private readonly observer = new ResizeObserver(() => this.resized());
  private isShown = false;
  private readonly rule = h("style");

  constructor(className: string) {
    this.root = h("section", { class: className });
    keepKeys(this.root);
  }

  /** Draws the view in the next animation frame; a hidden page has none. */
  draw(): void {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  /** Removes the view from the document. */
  dispose(): void {
    cancelAnimationFrame(this.frame);
    clearInterval(this.clock);
    this.observer.disconnect();
    this.removeThemeListener();
    this.root.remove();
  }

  protected abstract drawNow(): void;

  /** Redraws what depends on the clock. */
  protected tick(): void {}

  /** Says what the view shows: to screen readers and styles, and to the block that the notebook has saved of it. */
  protected identify(label: string, state: string, id: string): void {
    setAttributes(this.root, { "aria-label": label, "data-state": state, "data-run": id });
    setText(this.rule, hidingRule(id));
  }

  /** Called once, when the root has its content. */
  protected start(host: HTMLElement): void {
    this.root.append(this.rule);
    host.append(this.root);
    this.observer.observe(this.root);
    this.removeThemeListener = onThemeChange(() => this.recolour());
    this.clock = setInterval(() => this.tick(), CLOCK_MS);
    this.recolour();
    this.draw();
  }

  /**
   * The view has a place in the page now: JupyterLab makes the cells far below the fold outside of the document, where
   * no element has a colour and nothing can be scrolled.
   */
  protected shown(): void {
    this.recolour();
    this.draw();
  }

  protected resized(): void {
    const before = this.isShown;
    this.isShown = this.root.offsetParent !== null;
    if (this.isShown && !before) this.shown();
  }

  protected palette(): Palette {
    this.colours ??= this.readPalette();
    return this.colours;
  }

  protected readPalette(): Palette {
    return palette(this.root);
  }

  protected recolour(): void {
    setAttribute(this.root, "data-dark", String(isDark()));
    this.colours = null;
  }
}
