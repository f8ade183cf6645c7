// A program to look into: it has a search path, pages of debug information, a library of this
// folder and one of the system.
#include <archive.h>

#include <iostream>
#include <map>
#include <string>

const char* SampleText();

int main() {
  const std::map<std::string, std::string> said = {{SampleText(), archive_version_string()}};
  for (const auto& [text, version] : said) std::cout << text << ", " << version << "\n";
}
