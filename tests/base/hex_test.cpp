#include "base/hex.h"

#include <unistd.h>

#include "base/process.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

TEST(Hex, WritesTwoDigitsForEachByte) {
  const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
  EXPECT_EQ(to_hex(bytes), "000fa5ff");
  EXPECT_EQ(to_hex(std::string_view("\x7f\x80", 2)), "7f80");
  EXPECT_EQ(to_hex(Bytes()), "");
}

TEST(Hex, KnowsItsDigits) {
  EXPECT_TRUE(is_hex("0123456789abcdef"));
  for (const char* other : {"A", "g", " 1", "0x1"}) EXPECT_FALSE(is_hex(other)) << other;
}

TEST(Hex, RandomOnesDiffer) {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(random_hex(15));
  EXPECT_EQ(seen.size(), 100);
  for (const std::string& text : seen) EXPECT_TRUE(is_hex(text) && text.size() == 15) << text;
  EXPECT_EQ(random_hex(0), "");
}

TEST(Process, IsNamedByHostAndNumber) {
  EXPECT_EQ(process_name(), host_name() + ":" + std::to_string(::getpid()));
}

}  // namespace
}  // namespace deltawire::testing
