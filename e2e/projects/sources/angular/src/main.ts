import { Component, provideZonelessChangeDetection } from '@angular/core';
import { bootstrapApplication } from '@angular/platform-browser';
import { check } from '../page.js';

@Component({ selector: 'app-root', template: '' })
class App {
  constructor() {
    check();
  }
}

bootstrapApplication(App, { providers: [provideZonelessChangeDetection()] });
