#include "cli/work_options.h"

namespace deltawire::cli {

void add_work_options(Command* verb, WorkOptions* options) {
  verb->add_option("--work", options->folder,
                   "folder for states of the model meanwhile (default: the system's for "
                   "temporary files)");
  verb->add_option("--sign-key", options->sign_key, "sign what is added with this private key");
  verb->add_option("--trust", options->trust_key,
                   "refuse a chain that is not signed with this public key");
}

}  // namespace deltawire::cli
