// The program with every verb: build/deltawire, and what the Debian package brings.
#include "cli/verbs.h"
#include "lab/verbs.h"

int main(int argc, char** argv) {
  return deltawire::cli::run_program(argc, argv, deltawire::cli::lab_verbs());
}
