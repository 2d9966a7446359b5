#include "ship/beats.h"

#include <gtest/gtest.h>

#include "chain/heartbeat.h"

namespace deltawire {
namespace {

TEST(BeatsTest, TheLastOfThemCounts) {
  Beats beats;
  EXPECT_EQ(beats.least(0), std::nullopt);
  beats.note("a", "", 7, 0);
  beats.note("b", "", 5, 1);
  EXPECT_EQ(beats.least(2), 5u);
  beats.note("c", "", {}, 2);
  EXPECT_EQ(beats.least(3), std::nullopt);
  beats.note("c", "", 9, 3);
  beats.note("b", "", 8, 4);
  EXPECT_EQ(beats.least(5), 7u);
}

TEST(BeatsTest, ThoseWhoAreGoneHoldNothingUp) {
  Beats beats;
  beats.note("gone", "g", 1, 0);
  beats.note("removed", "r", 2, 0);
  beats.note("here", "h", 9, 100);
  EXPECT_EQ(beats.least(100), 1u);
  beats.forget("removed");
  beats.forget("nobody");
  EXPECT_EQ(beats.texts(100), (std::map<std::string, std::string>{{"gone", "g"}, {"here", "h"}}));
  const double later = double(kSilentSeconds) + 1;
  EXPECT_EQ(beats.least(later), 9u);
  EXPECT_EQ(beats.texts(later), (std::map<std::string, std::string>{{"here", "h"}}));
}

}  // namespace
}  // namespace deltawire
