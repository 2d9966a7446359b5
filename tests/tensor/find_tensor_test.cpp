#include "tensor/form.h"

#include <span>

#include "deltawire/checkpoint.h"
#include "test_files.h"

namespace deltawire::testing {
namespace {

struct Named {
  std::string name;
  int value = 0;
};

TEST(FindTensor, FindsTheOneOfThatNameOrNone) {
  std::vector<Named> tensors = {{"a", 1}, {"b", 2}, {"bb", 3}, {"d", 4}};
  EXPECT_EQ(find_tensor(tensors, "a")->value, 1);
  EXPECT_EQ(find_tensor(tensors, "bb")->value, 3);
  EXPECT_EQ(find_tensor(tensors, "d")->value, 4);
  for (const char* other : {"", "aa", "c", "e"}) EXPECT_EQ(find_tensor(tensors, other), nullptr);
  find_tensor(tensors, "b")->value = 7;
  EXPECT_EQ(tensors[1].value, 7);
  EXPECT_EQ(find_tensor(std::span<const Named>(), "a"), nullptr);
}

TEST(FindTensor, LooksIntoViews) {
  std::vector<CheckpointTensor> tensors(2);
  tensors[0].view.name = "x";
  tensors[1].view.name = "y";
  const std::span<const CheckpointTensor> held = tensors;
  EXPECT_EQ(find_tensor(held, "y"), &tensors[1]);
  EXPECT_EQ(find_tensor(held, "z"), nullptr);
}

}  // namespace
}  // namespace deltawire::testing
