// The files that `muster new` writes. `text` has the placeholders {{NAME}}, {{CLASS}} and {{ROOT}}.
// The build generates the array from the files of this folder.
#pragma once

namespace muster {

struct TemplateFile {
  const char* name;
  const char* text;
};
extern const TemplateFile kTemplateFiles[];
extern const int kNumTemplateFiles;

}  // namespace muster
