// What the model says on the whole, in words: the likeliest answer, or all of a translation.
export const saidBy = ({ header }) => (header.translation === undefined ? (header.answer.top[0]?.name ?? "") : header.translation + (header.continuation ?? ""));
