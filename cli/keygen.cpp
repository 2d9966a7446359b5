#include <fmt/format.h>

#include "cli/verbs.h"
#include "deltawire/keys.h"

namespace deltawire::cli {
namespace {

int keygen(const Context& context, const std::string& out) {
  const Result<std::string> key = make_key_files(out);
  if (!key.ok()) return context.fail(key.status());
  context.say(fmt::format("{}: private key, for publish --sign-key; keep it secret", out));
  context.say(fmt::format("{}.pub: public key, for --trust on readers", out));
  context.emit({{"private_key", out}, {"public_key", out + ".pub"}, {"key", *key}});
  return context.succeed();
}

}  // namespace

void add_keygen(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "keygen", "Make a pair of keys that sign and check versions",
                "  deltawire keygen -o trainer\n"
                "  deltawire publish ckpt s3://bucket/run --sign-key trainer\n"
                "  deltawire follow s3://bucket/run local --trust trainer.pub");
  auto out = std::make_shared<std::string>();
  verb->add_option("-o,--out", *out, "the private key; the public one is OUT.pub")->required();
  verb->callback(
      [&context, call, out] { *call = [&context, out] { return keygen(context, *out); }; });
}

}  // namespace deltawire::cli
