#include <fmt/format.h>

#include "cli/verbs.h"
#include "deltawire/keys.h"

namespace deltawire::cli {
namespace {

Status keygen(const Context& context, const std::string& out) {
  DW_ASSIGN_OR_RETURN(const std::string key, make_key_files(out));
  context.print("{}: private key, for publish --sign-key; keep it secret", out);
  context.print("{}.pub: public key, for --trust on readers", out);
  context.emit({{"private_key", out}, {"public_key", out + ".pub"}, {"key", key}});
  return {};
}

}  // namespace

void add_keygen(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "keygen", "Make a pair of keys that sign and check versions",
                "  deltawire keygen -o trainer\n"
                "  deltawire publish ckpt s3://bucket/run --sign-key trainer\n"
                "  deltawire follow s3://bucket/run local --trust trainer.pub");
  auto* const out = set_call(verb, context, call, keygen);
  verb->add_option("-o,--out", *out, "the private key; the public one is OUT.pub")->required();
}

}  // namespace deltawire::cli
