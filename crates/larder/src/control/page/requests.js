export class Requests { constructor(){} async latest(){} arrived(){} enter(){} }
