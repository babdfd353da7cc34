//! Diagrams as SVG text, for the command line, the reports and the page alike. It never reads or writes a file.
