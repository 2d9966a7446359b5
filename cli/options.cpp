#include "cli/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "cli/units.h"
#include "cli/verbs.h"
#include "codec/codec.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr uint64_t kMostVersion = 9'999'999'999;  // what names of objects have room for

[[noreturn]] void refuse(const std::string& names, const std::string& expected,
                         const std::string& got) {
  // "-j,--threads": the long name says more.
  const std::string name = names.substr(names.rfind(',') + 1);
  refuse_value(name, fmt::format("expected {}, got {}", expected, quote(got)));
}

bool parse_decimal(const std::string& text, uint64_t* value) {
  const bool octal_looking = text.size() > 1 && text[0] == '0';
  return !octal_looking && parse_number(text, value);
}

bool parse_real(const std::string& text, double* value) {
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != text.npos) return false;
  char* end = nullptr;
  *value = std::strtod(text.c_str(), &end);
  return *end == '\0' && std::isfinite(*value);
}

}  // namespace

Option* add_whole_number(Command* verb, const std::string& names,
                         std::function<void(uint64_t)> store, const std::string& description,
                         uint64_t least, uint64_t most) {
  const auto parse = [=](const std::string& text) {
    uint64_t number = 0;
    if (!parse_decimal(text, &number) || number < least || number > most) {
      refuse(names, fmt::format("a whole number from {} to {}", least, most), text);
    }
    store(number);
  };
  return verb->add_parsed(names, parse, description)->type_name("N");
}

Option* add_version(Command* verb, const std::string& names, std::function<void(uint64_t)> store,
                    const std::string& description) {
  const auto parse = [=](const std::string& text) {
    uint64_t number = 0;
    if (!parse_number(text, &number) || number > kMostVersion) {
      refuse(names, fmt::format("the number of a version, 0 to {}", kMostVersion), text);
    }
    store(number);
  };
  return verb->add_parsed(names, parse, description)->type_name("N");
}

Option* add_share(Command* verb, const std::string& names, double* value,
                  const std::string& description, double least, double most) {
  const auto parse = [=](const std::string& text) {
    if (!parse_real(text, value) || !(*value > least) || *value > most) {
      refuse(names, fmt::format("a number above {} and at most {}", least, most), text);
    }
  };
  return verb->add_parsed(names, parse, description)->type_name("X");
}

Option* add_seconds(Command* verb, const std::string& names, double* value,
                    const std::string& description, double least, double most) {
  const auto parse = [=](const std::string& text) {
    double seconds = 0;
    if (!parse_real(text, &seconds) || seconds < least || seconds > most) {
      refuse(names, fmt::format("seconds, {} to {}", least, most), text);
    }
    *value = seconds;
  };
  return verb->add_parsed(names, parse, description)->type_name("SECONDS");
}

Option* add_bytes(Command* verb, const std::string& names, uint64_t* value,
                  const std::string& description) {
  const auto parse = [=](const std::string& text) {
    const Result<uint64_t> bytes = parse_bytes(text);
    if (!bytes.ok() || *bytes == 0) {
      refuse(names, "a size of at least 1 byte, such as 1000000, 256MiB or 1GB", text);
    }
    *value = *bytes;
  };
  return verb->add_parsed(names, parse, description)->type_name("SIZE");
}

Option* add_choice(Command* verb, const std::string& names, std::string* value,
                   const std::string& description, const std::vector<std::string>& words) {
  const auto parse = [=](const std::string& text) {
    if (std::find(words.begin(), words.end(), text) == words.end()) {
      refuse(names, fmt::format("one of {}", fmt::join(words, ", ")), text);
    }
    *value = text;
  };
  return verb->add_parsed(names, parse, description)->type_name("NAME")->offer(words);
}

Option* add_codec(Command* verb, std::string* value, const std::string& description,
                  std::vector<std::string> words) {
  std::vector<std::string_view> codecs;
  for (const Codec* codec : all_codecs()) codecs.push_back(codec->name());
  words.insert(words.end(), codecs.begin(), codecs.end());
  return add_choice(verb, "--codec", value,
                    fmt::format("{}; or one of {}", description, fmt::join(codecs, ", ")), words);
}

Command* make_verb(Command& app, Context& context, const std::string& name,
                   const std::string& description, const std::string& examples) {
  Command* verb = app.add_verb(name, description);
  verb->set_footer("Examples:\n" + examples);
  verb->add_flag("--json", context.json, "print one JSON object on stdout and nothing else there");
  verb->add_flag("-q,--quiet", context.quiet, "print no report and no progress");
  return verb;
}

void add_threads(Command* verb, Context& context) {
  add_whole_number(verb, "-j,--threads", &context.threads,
                   "threads to use, 1 to 1024 (default: one per core)", 1, 1024);
}

}  // namespace deltawire::cli
