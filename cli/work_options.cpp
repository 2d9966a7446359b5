#include "cli/work_options.h"

namespace deltawire::cli {

void add_key_options(Command* verb, Keys* keys) {
  Option* const sign =
      verb->add_option("--sign-key", keys->sign, "sign what is added with this private key");
  verb->add_option("--trust", keys->trust, "refuse a chain that no key in this file has signed");
  // Two words, so that no missing --sign-key ends the signing.
  verb->add_flag(
          "--change-key", [keys] { keys->change = KeyChange::kNewKey; },
          "allow another key than that of the newest version, or the first signature; needed once")
      ->needs(sign);
  verb->add_flag(
          "--unsigned", [keys] { keys->change = KeyChange::kUnsigned; },
          "stop signing, though the newest version is signed; replicas with --trust stop there")
      ->excludes(sign);
}

void add_work_options(Command* verb, WorkOptions* work, Keys* keys) {
  verb->add_option(
      "--work", work->folder,
      "folder for copies of the model during the work (default: the system's temporary folder)");
  add_key_options(verb, keys);
}

}  // namespace deltawire::cli
