// What the model says on the whole, in words: the likeliest answer, or all of a translation.
export const saidBy = ({ header }) => (header.translation === undefined ? (header.answer.top[0]?.name ?? "") : header.translation + (header.continuation ?? ""));

// An image of one colour: there is nothing in it to answer to.
export const isBlank = ({ arrays: { pixels } }) => Boolean(pixels?.data.every((value) => Math.abs(value - pixels.data[0]) < 1e-6));
