// Strict, streaming JSON reader for the safetensors header and the sharded index. Includes
// nlohmann-json, so only source files include it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "deltawire/status.h"

namespace deltawire {

// Receives a JSON text event by event; no tree is built, so memory is what the subclass keeps.
// Subclasses override the events below and stop the parse by returning fail(). The parser itself is
// iterative and objects and arrays nest at most `max_depth` deep.
class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(size_t max_depth) : max_depth_(max_depth) {}

 protected:
  virtual bool on_object() = 0;
  virtual bool on_key(std::string& key) = 0;
  virtual bool on_object_end() = 0;
  virtual bool on_array() = 0;
  virtual bool on_array_end() = 0;
  virtual bool on_string(std::string& text) = 0;
  virtual bool on_unsigned(uint64_t number) = 0;
  virtual bool on_other_number(std::string_view text) = 0;  // negative, fractional, over 2^64
  virtual bool on_literal(std::string_view text) = 0;       // null, true, false

  bool fail(Status status);  // always false
  size_t depth() const noexcept { return depth_; }

 private:
  friend Status parse_json_object(std::string_view text, JsonHandler& handler);

  bool null() final { return on_literal("null"); }
  bool boolean(bool value) final { return on_literal(value ? "true" : "false"); }
  // Only for text that begins with '-'.
  bool number_integer(int64_t value) final {
    return on_other_number(value == 0 ? "-0" : std::to_string(value));
  }
  bool number_unsigned(uint64_t value) final { return on_unsigned(value); }
  bool number_float(double, const std::string& text) final { return on_other_number(text); }
  bool string(std::string& text) final { return on_string(text); }
  bool binary(binary_t&) final { return on_literal("binary"); }
  bool start_object(size_t) final { return descend() && on_object(); }
  bool key(std::string& key) final { return on_key(key); }
  bool end_object() final;
  bool start_array(size_t) final { return descend() && on_array(); }
  bool end_array() final;
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& error) final;

  bool descend();

  size_t max_depth_;
  size_t depth_ = 0;
  bool root_closed_ = false;
  Status status_;
};

// Feeds `text`, one JSON object and nothing after it but whitespace, to the handler. Returns the
// handler's own failure, or Corruption with the defect of the text and its position.
Status parse_json_object(std::string_view text, JsonHandler& handler);

}  // namespace deltawire
