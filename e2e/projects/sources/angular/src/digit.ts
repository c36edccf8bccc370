import { Component, input, resource } from '@angular/core';
import { env } from 'pyruntime';
import { readDigit } from '../digits.js';

env.wasm.wasmPaths = '/engine/'; // as angular.json says

@Component({
  selector: 'app-digit',
  template: `<p role="status">{{ digit.error()?.message ?? (digit.hasValue() ? 'This is a ' + digit.value() + '.' : 'Reading …') }}</p>`,
})
export class Digit {
  pixels = input.required<Float32Array>();
  digit = resource({ params: () => this.pixels(), loader: ({ params }) => readDigit(params) });
}
