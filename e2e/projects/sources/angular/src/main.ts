import { Component, provideZonelessChangeDetection } from '@angular/core';
import { bootstrapApplication } from '@angular/platform-browser';
import { check } from '../page.js';
import { Digit } from './digit';

@Component({ selector: 'app-root', imports: [Digit], template: '<app-digit [pixels]="blank" />' })
class App {
  blank = new Float32Array(28 * 28);

  constructor() {
    check();
  }
}

bootstrapApplication(App, { providers: [provideZonelessChangeDetection()] });
