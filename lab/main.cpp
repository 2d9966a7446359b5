// The program with all verbs, for `make build` and the Debian package.
#include "cli/verbs.h"
#include "lab/verbs.h"

int main(int argc, char** argv) {
  return deltawire::cli::run_program(argc, argv, deltawire::cli::lab_verbs());
}
