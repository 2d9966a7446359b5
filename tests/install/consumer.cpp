// A program outside the tree: sees only what is installed.
#include <deltawire/delta.h>
#include <deltawire/digest.h>

#include <cstdio>

int main() {
  deltawire::Hasher hasher(deltawire::DigestKind::kXxh3_128);
  hasher.update("deltawire");
  const bool same = hasher.finish().hex() == "cf216a14312a6a80d4b4a6f2fd16f17c";

  // Links every layer, and with them every library that they stand on.
  const auto report = deltawire::diff_checkpoints("no-such-old", "no-such-new", "delta", {});
  std::puts(report.ok() ? "a delta of nothing" : report.status().to_string().c_str());
  return same && report.status().code() == deltawire::Code::kNotFound ? 0 : 1;
}
