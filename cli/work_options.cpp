#include "cli/work_options.h"

namespace deltawire::cli {

void add_key_options(Command* verb, std::filesystem::path* sign_key,
                     std::filesystem::path* trust_key, bool* change_key) {
  Option* const sign =
      verb->add_option("--sign-key", *sign_key, "sign what is added with this private key");
  verb->add_option("--trust", *trust_key, "refuse a chain that no key in this file has signed");
  // Two words for one switch, so that no missing --sign-key ends the signing.
  verb->add_flag(
          "--change-key", *change_key,
          "allow another key than that of the newest version, or the first signature; needed once")
      ->needs(sign);
  verb->add_flag(
          "--unsigned", *change_key,
          "stop signing, though the newest version is signed; replicas with --trust stop there")
      ->excludes(sign);
}

void add_work_options(Command* verb, WorkOptions* work, ChainOptions* keys) {
  verb->add_option(
      "--work", work->folder,
      "folder for copies of the model during the work (default: the system's temporary folder)");
  add_key_options(verb, &keys->sign_key, &keys->trust_key, &keys->change_key);
}

}  // namespace deltawire::cli
