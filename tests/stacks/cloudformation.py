"""A template's intrinsic functions, replaced by text that looks like what CloudFormation would put there."""

from typing import Any

PSEUDO = {
    "AWS::Region": "us-east-1",
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "AWS::URLSuffix": "amazonaws.com",
}


def filled(value: Any) -> Any:
    match value:
        case {"Fn::Join": [separator, parts]}:
            return separator.join(filled(part) for part in parts)
        case {"Ref": name}:
            return PSEUDO.get(name, f"arn:aws:service:us-east-1:123456789012:{name}")
        case {"Fn::GetAtt": [name, "Arn"]}:
            return f"arn:aws:service:us-east-1:123456789012:{name}"
        case {"Fn::GetAtt": [name, _]}:
            return f"{name}-name"
        case {"Fn::Select": [index, {"Fn::Split": [separator, text]}]}:
            parts = filled(text).split(separator)
            return parts[min(int(index), len(parts) - 1)]
        case {"Fn::Select": [index, {"Fn::GetAZs": _}]}:
            return f"us-east-1{'abcdef'[int(index)]}"
        case {"Fn::FindInMap": _}:
            return "763104351884"
        case {"Fn::Sub": text}:
            for name, pseudo in PSEUDO.items():
                text = text.replace(f"${{{name}}}", pseudo)
            return text
        case dict():
            return {key: filled(item) for key, item in value.items()}
        case list():
            return [filled(item) for item in value]
        case _:
            return value
