// Makes small files for the tests of dataset readers.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace muster::data {

// A temporary folder. The destructor removes it.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "muster_data_XXXXXX";
    if (mkdtemp(name.data()) == nullptr) std::abort();
    path_ = name;
  }
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline void WriteBytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc).write(bytes.data(), bytes.size());
}

inline std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = bytes.size();
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = out.size();
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

inline std::string BigEndian(uint32_t word) {
  return {static_cast<char>(word >> 24), static_cast<char>(word >> 16),
          static_cast<char>(word >> 8), static_cast<char>(word)};
}

// Returns the bytes of a PNG file whose pixels all have one grey value.
inline std::string Png(uint32_t height, uint32_t width, uint8_t value) {
  const auto chunk = [](const std::string& type, const std::string& data) {
    const std::string body = type + data;
    const uLong sum = crc32(0, reinterpret_cast<const Bytef*>(body.data()), body.size());
    std::string whole = BigEndian(static_cast<uint32_t>(data.size()));
    whole.append(body).append(BigEndian(static_cast<uint32_t>(sum)));
    return whole;
  };
  std::string rows;
  for (uint32_t y = 0; y < height; ++y)
    rows.append(1, '\0').append(width, static_cast<char>(value));
  std::string packed(compressBound(rows.size()), '\0');
  uLongf size = packed.size();
  EXPECT_EQ(compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                     reinterpret_cast<const Bytef*>(rows.data()), rows.size()),
            Z_OK);
  packed.resize(size);
  std::string header = BigEndian(width);
  header.append(BigEndian(height)).append({8, 0, 0, 0, 0});  // 8 bits, grey
  std::string bytes = "\x89PNG\r\n\x1a\n";
  bytes.append(chunk("IHDR", header)).append(chunk("IDAT", packed)).append(chunk("IEND", ""));
  return bytes;
}

// Returns the bytes of an IDX file with this header and data.
inline std::string Idx(uint8_t type, const std::vector<uint32_t>& shape, const std::string& data) {
  std::string bytes = {0, 0, static_cast<char>(type), static_cast<char>(shape.size())};
  for (uint32_t dimension : shape) bytes += BigEndian(dimension);
  return bytes + data;
}

}  // namespace muster::data
