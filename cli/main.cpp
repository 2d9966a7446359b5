// The program with the verbs of daily use and nothing else, as the Python package brings it;
// lab/main.cpp has them all.
#include "cli/verbs.h"

int main(int argc, char** argv) { return deltawire::cli::run_program(argc, argv, {}); }
