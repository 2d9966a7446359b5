#include "cli/next_step.h"

#include <algorithm>

#include <optional>
#include <utility>

#include "base/log.h"
#include "base/next_step.h"

namespace deltawire::cli {

namespace {

// The commands for rows of the library's table.
struct Typed {
  std::string_view words, flags;
};
constexpr Typed kTyped[] = {
    {"is the store mounted?", "--new-run"},
    {"set accept_loss", "deltawire publish --accept-loss"},
    {"set schema_change", "--schema-change"},
    {"differs from the source's record", "--verify"},
    {"import from version", "--from VERSION"},
    {"a source that has moved", "--source-moved"},
    {"needs the checkpoint that the first one", "--base CKPT"},
    {"is missing or not complete, though", "--missing-is-unchanged, --from VERSION, --base CKPT"},
    {"is a store, not a folder", "deltawire follow STORE LOCAL, deltawire pull STORE LOCAL"},
    {"is a replica's folder, not", "deltawire follow STORE LOCAL, deltawire pull STORE LOCAL"},
    {"Address already in use",
     "--listen HOST:PORT, --serve HOST:PORT or --metrics-port PORT; 0 for any that is free"},
    {"the store has lost", "deltawire pull STORE LOCAL --version N"},
    {"holds no run", "deltawire publish CKPT STORE"},
    {"another history", "deltawire pull STORE LOCAL --version N"},
    {"but the oldest accepted version is", "--at-least N"},
    {"is not gone; its last heartbeat was", "--force"},
    {"the command did not finish within", "--notify-timeout SECONDS"},
    {"cannot put an object only if it is absent", "--single-writer"},
    {"signature:", "--trust KEY.pub"},
    {"no such bucket", "--endpoint URL"},
    {"certificate is not trusted", "--ca-file FILE"},
    {"does not accept the token", "--token-file FILE"},
    {"but the new record would be unsigned", "--sign-key KEY, or --unsigned"},
    {"is not signed, but the new record would be", "--change-key"},
    {"but the new record would be signed with", "--change-key, or --trust FILE"},
    {"must check signatures", "--trust FILE, or --unsigned"},
    {"store an anchor there first", "deltawire compact STORE --anchor"},
};

// Next steps for messages of the command line itself.
constexpr std::string_view kSayIt[] = {"--force ", "say --", "is --base"};

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Next steps for import and export, which read or write more than a chain.
std::optional<std::string> bridge_step(Code code, std::string_view verb) {
  struct Step {
    Code code;
    std::string_view import, exporting;
  };
  static constexpr Step kSteps[] = {
      {Code::kNotFound, "deltawire inspect SRC lists their versions",
       "deltawire log STORE lists the chain's versions"},
      {Code::kCorruption, "of SRC: copy the version again; of STORE: deltawire fsck STORE lists it",
       "of STORE: deltawire fsck STORE lists it; of DST: export to an empty destination"},
      {Code::kBaseMismatch, "import into an empty store, with the --base that the run began with",
       "export to an empty destination"},
      {Code::kUnavailable, "repeat it; --follow does so by itself",
       "repeat it; --follow does so by itself"},
      {Code::kOutOfMemory, "repeat it with less: --memory, --threads",
       "repeat it with less: --memory, --threads"},
  };
  if (!is_one_of(verb, {"import", "export"})) return {};
  for (const Step& step : kSteps) {
    if (step.code == code) return std::string(verb == "import" ? step.import : step.exporting);
  }
  return {};
}

// The next step for all other failures of this code.
std::string usual_step(Code code, std::string_view verb) {
  if (const auto step = bridge_step(code, verb)) return *step;
  const bool on_files = is_one_of(verb, {"diff", "apply", "verify", "inspect"});
  switch (code) {
    case Code::kInvalidArgument:
      return "deltawire " + std::string(verb) + (verb.empty() ? "" : " ") +
             "--help shows what it takes, with examples";
    case Code::kNotFound:
      return on_files ? "check the path: ls -l PATH" : "deltawire log STORE shows what is there";
    case Code::kCorruption:
      return on_files ? "copy the file again from where it came"
                      : "deltawire fsck STORE lists all damage";
    case Code::kBaseMismatch:
      return on_files ? "apply it to the checkpoint that it was made from: deltawire inspect DELTA"
                      : "deltawire pull STORE LOCAL, without --no-repair, repairs a replica";
    case Code::kUnavailable:
      return "repeat it; follow and publish --watch do so by themselves";
    case Code::kOutOfMemory:
      return "repeat it with less: --memory-limit, --threads";
    default:
      return std::string(usual_next_step(code));
  }
}

}  // namespace

std::vector<std::string_view> typed_words() {
  std::vector<std::string_view> words;
  for (const Typed& typed : kTyped) words.push_back(typed.words);
  return words;
}

std::string next_step(const Status& status, std::string_view verb) {
  for (const std::string_view words : kSayIt) {
    if (status.message().find(words) != std::string::npos) return {};
  }
  const NextStep* const step = find_next_step(status);
  if (step == nullptr) return usual_step(status.code(), verb);
  std::string text(step->next);
  for (const Typed& typed : kTyped) {
    if (typed.words == step->words) text.append(text.empty() ? "" : ": ").append(typed.flags);
  }
  return text;
}

void log_retry(std::string_view event, const Status& status, std::string_view verb,
               double seconds) {
  const LogField error{"error", status}, retry{"retry_in_seconds", seconds};
  const bool just_wait = status.code() == Code::kUnavailable && find_next_step(status) == nullptr;
  const std::string next = just_wait ? "" : next_step(status, verb);
  if (next.empty()) return log_event(LogLevel::kError, event, {error, retry});
  log_event(LogLevel::kError, event, {error, retry, {"next", next}});
}

namespace {

// The number of edits; a swap of neighbours counts as one.
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) above[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(above, row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest_word(std::string_view typed, const std::vector<std::string>& words) {
  constexpr size_t kMostSlips = 2;
  std::string best;
  size_t least = std::min(kMostSlips + 1, typed.size());  // not every letter of it
  for (const std::string& word : words) {
    const size_t slips = distance(typed, word);
    if (slips < least) {
      least = slips;
      best = word;
    }
  }
  return best;
}

}  // namespace deltawire::cli
