// A program outside the tree: sees only what is installed.
#include <deltawire/digest.h>
#include <deltawire/status.h>

#include <cstdio>

int main() {
  deltawire::Hasher hasher(deltawire::DigestKind::kXxh3_128);
  hasher.update("deltawire");
  const std::string hex = hasher.finish().hex();
  std::puts(hex.c_str());
  return hex == "cf216a14312a6a80d4b4a6f2fd16f17c" ? 0 : 1;
}
