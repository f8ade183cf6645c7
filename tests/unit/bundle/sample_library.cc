const char* SampleText() { return "sample"; }
