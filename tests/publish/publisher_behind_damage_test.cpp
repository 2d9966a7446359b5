// A snapshot on disk that stays behind the chain, and what may happen to it and to its log: no
// version is built on anything but the head.
#include "publish/behind.h"

namespace deltawire {
namespace {

using testing::BehindTest;
using testing::holds;
namespace fs = std::filesystem;

class BehindDamageTest : public BehindTest {};

void overwrite_byte(const fs::path& path, uint64_t at, char bits) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(ptrdiff_t(at));
  const char was = char(file.get());
  file.seekp(ptrdiff_t(at));
  file.put(char(was ^ bits));
}

TEST_P(BehindDamageTest, CopiesThatAreDamagedAreFetchedAgain) {
  publish_versions(4);
  const std::vector<fs::path> copies = parts();
  ASSERT_EQ(copies.size(), 3);
  std::vector<std::string> contents;
  for (const fs::path& copy : copies) contents.push_back(testing::read_file(copy));
  const std::string& first = contents[0];
  const auto write = [](const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
  };
  std::vector<std::function<void()>> damages;
  damages.emplace_back([&] { fs::remove(copies[0]); });
  damages.emplace_back([&] { fs::remove_all(copies[0].parent_path()); });
  damages.emplace_back([&] { write(copies[0], contents[1]); });  // another version's
  damages.emplace_back([&] { write(copies[0], first + "x"); });
  damages.emplace_back([&] {
    fs::remove(copies[0]);
    fs::create_directory(copies[0]);
    write(copies[0] / "a file", "in the way");
  });
  for (const double share : {0.0, 0.3, 0.99}) {
    damages.emplace_back(
        [&, share] { write(copies[0], first.substr(0, size_t(share * double(first.size())))); });
  }
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.999}) {
    damages.emplace_back(
        [&, share] { overwrite_byte(copies[0], uint64_t(share * double(first.size())), '\x10'); });
  }
  for (size_t i = 0; i < damages.size(); ++i) {
    publisher.reset();
    for (size_t c = 0; c < copies.size(); ++c) write(copies[c], contents[c]);
    damages[i]();
    reopen();
    const PublishReport report = publish(model.views());
    EXPECT_EQ(report.committed, i == 0) << "damage " << i;
    EXPECT_EQ(report.version, 4) << "damage " << i;
    EXPECT_TRUE(report.warnings.empty()) << "damage " << i;
    EXPECT_EQ(held(), 0) << "damage " << i;
    EXPECT_TRUE(holds(store, 4, model)) << "damage " << i;
    if (!GetParam().local) {
      EXPECT_EQ(testing::read_file(copies[0]), first) << "damage " << i;
    }
  }
}

TEST_P(BehindDamageTest, PartsThatTheStoreHasLost) {
  publish_versions(4);
  publisher.reset();
  for (const std::string& name : testing::objects_of(*store, kPartPrefix)) {
    ASSERT_TRUE(store->remove(name).ok());
  }
  reopen();
  const PublishReport report = publish(model.views());
  EXPECT_EQ(report.version, 4);
  EXPECT_TRUE(report.warnings.empty());
}

TEST_P(BehindDamageTest, ASnapshotThatIsDamaged) {
  publish_versions(3);
  const fs::path weights = checkpoint() / "model.safetensors";
  const auto size = fs::file_size(weights);
  // While it is open, and between processes.
  for (const bool open : {true, false, true}) {
    if (!open) publisher.reset();
    overwrite_byte(weights, size / 2, '\x7f');
    if (!open) reopen();
    const PublishReport report = publish(model.views());
    EXPECT_TRUE(report.committed);
    EXPECT_EQ(report.warnings.size(), open ? 1 : 0);
    EXPECT_TRUE(holds(store, report.version, model));
    model.step();
  }
  // Half-way to a version, and nothing says how it goes on.
  publisher.reset();
  const fs::path state_file = checkpoint() / ".deltawire" / "state.json";
  std::string state = testing::read_file(state_file);
  const size_t at = state.find("\"patching_to\"");
  ASSERT_NE(at, std::string::npos);
  state.replace(at, state.find_first_of(",}", at) - at, "\"patching_to\":5");
  std::ofstream(state_file, std::ios::binary) << state;
  reopen();
  publish_versions(2);
}

TEST_P(BehindDamageTest, ASnapshotOfAnotherRun) {
  publish_versions(3);
  publisher.reset();
  auto other = std::make_shared<MemoryStore>();
  EXPECT_FALSE(Publisher::open(other, options).ok());
  options.new_run = true;
  auto opened = Publisher::open(other, options);
  ASSERT_TRUE(opened.ok()) << opened.status().to_string();
  const auto report = opened->publish(model.views());
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->version, 0);
  EXPECT_TRUE(holds(other, 0, model));
}

TEST_P(BehindDamageTest, NoRoomForCopies) {
  publish_versions(1);
  std::ofstream(folder.path() / "snapshot" / "parts") << "in the way";
  publish_versions(1);
  reopen();
  publish_versions(3);
}

INSTANTIATE_TEST_SUITE_P(Stores, BehindDamageTest, testing::kBehindStores, testing::behind_name);

}  // namespace
}  // namespace deltawire
