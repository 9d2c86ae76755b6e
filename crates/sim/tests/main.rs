//! The simulator runs, finds what is planted; the model of copies, in one program.

mod copies;
mod sim;
