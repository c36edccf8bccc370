import { useEffect, useState } from 'react';
import { readDigit } from './digits.js';

export function Digit({ pixels }) {
  const [text, setText] = useState('Reading …');
  useEffect(() => {
    let current = true;
    readDigit(pixels).then(
      (digit) => { if (current) setText(`This is a ${digit}.`); },
      (error) => { if (current) setText(error.message); },
    );
    return () => { current = false; };
  }, [pixels]);
  return <p role="status">{text}</p>;
}
