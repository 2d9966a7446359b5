// The program with the verbs of daily use, for the Python package; lab/main.cpp has all verbs.
#include "cli/verbs.h"

int main(int argc, char** argv) { return deltawire::cli::run_program(argc, argv, {}); }
