"""What vendors and languages call the columns of a log."""

import re

ROLES = {
    "session_id": (
        "session sessionid sessionkey usersession gasessionid eventsessionid visit visitid sid "
        "domainsessionid sitzung sitzungsid sitzungsnr besuch besuchsid seance visite sesion "
        "idsesion visita sessione sessie bezoek sesja",
        "session visit sitzung sesion sessie",
    ),
    "user_id": (
        "user userid uid visitor visitorid customer customerid customernumber client clientid "
        "fullvisitorid userpseudoid anonymousid anonid member memberid account accountid profileid "
        "distinctid domainuserid networkuserid cookie cookieid deviceid personid shopper reader "
        "shopperid readerid kunde kundennr kundenid kundennummer benutzer benutzerid nutzer "
        "nutzerid besucher besucherid utilisateur idutilisateur idclient usuario idusuario cliente "
        "idcliente utente klant klantid klantnr gebruiker uzytkownik",
        "user visitor customer client anonymous kunde kunden nutzer benutzer usuario cliente klant",
    ),
    "item_id": (
        "item itemid product productid pid sku skuid article articleid clickarticleid movie "
        "movieid track trackid song songid aid contentid asin bookid isbn newsid nid offerid "
        "listingid "
        "videoid goodsid poi poiid venueid businessid adid productcode itemcode gameid hotelid "
        "artikel artikelid artikelnr artikelnummer produkt produktid produktnr articulo producto "
        "idproducto produit idproduit prodotto idprodotto articolo produkty",
        "item product sku article artikel produkt movie track producto produit prodotto",
    ),
    "page": ("pagelocation pageurl url page pagepath link uri", ""),
    "time": (
        "timestamp time ts eventtime eventtimestamp date datetime createdat occurredat servertime "
        "clienttime clicktime clicktimestamp visittime unixtime epoch eventdate collectortstamp "
        "derivedtstamp zeit zeitpunkt zeitstempel datum uhrzeit fecha hora fechahora horodatage "
        "heure dataora tijd tijdstip czas when at",
        "time timestamp tstamp date zeit datum fecha",
    ),
    "event_type": (
        "event eventtype type action actiontype behavior behaviour behaviortype eventname "
        "interaction activity verb aktion ereignis accion evento azione actie zdarzenie",
        "event action behavior aktion",
    ),
    "event_id": (
        "messageid eventid eventuuid insertid hitid eventinsertid requestid nachrichtenid "
        "ereignisid",
        "",
    ),
    "category": (
        "category categoryid categoryname categorycode cat brand brandname genre genres department "
        "class subcategory "
        "maincategory producttype color colour size kategorie marke warengruppe farbe groesse "
        "categoria marca categorie marque merk",
        "category categories brand genre kategorie marke warengruppe categoria categorie marque",
    ),
    "title": (
        "title name productname itemname producttitle itemtitle trackname moviename titel "
        "bezeichnung artikelname artikelbezeichnung produktname titulo nombre titre nom titolo",
        "title titel bezeichnung",
    ),
    "price": (
        "price unitprice productprice itemprice amount revenue preis betrag einzelpreis vk precio "
        "prix prezzo prijs cena",
        "price preis precio prix prezzo prijs",
    ),
    "rating": ("rating score stars note bewertung", "rating"),
    "available_from": (
        "availablefrom availability release released releasedate releasedat launchdate launched "
        "onlinefrom onlinesince validfrom publishedat firstavailable lieferbarab verfuegbarab "
        "verfügbarab erscheinungsdatum erschienen gueltigab gültigab von",
        "",
    ),
    "available_until": (
        "availableuntil availabletill availableto withdrawn withdrawnat discontinued "
        "discontinuedat onlineuntil validuntil validto enddate expires expiresat lieferbarbis "
        "verfuegbarbis verfügbarbis gueltigbis gültigbis auslaufdatum bis",
        "",
    ),
    "start": ("sessionstart sessionstarted visitstarttime sessionstarttime", ""),
}
"""Names without signs and case that are usual for a role, and words that hint at it."""
_ACTIONS = """
    view viewed views click clicks clicked pv pageview impression cart carts addtocart added add
    basket buy buys buyout bought purchase purchased purchases order orders ordered transaction
    transactions checkout fav favorite favourite wishlist like liked play played read remove removed
    removefromcart detail open opened search rate rated ansicht aufruf klick warenkorb kauf
    bestellung merkzettel vista carrito compra vue panier achat
"""
ACTIONS = frozenset(_ACTIONS.split())
"""Words in names of what happened to an item."""
_ID_WORDS = ("id", "ids", "nr", "no", "key", "hash", "uuid", "guid", "code", "ref", "num")
ZONES = {
    "Europe/Berlin": "zeitpunkt zeit datum kunde kundennr sitzung artikel artikelnr preis aktion "
    "kategorie marke ereignis bezeichnung kundennummer artikelnummer nutzer besucher produkt",
    "Europe/Paris": "horodatage heure utilisateur produit prix categorie marque seance idclient",
    "Europe/Madrid": "fecha hora usuario producto precio categoria marca sesion cliente",
    "Europe/Rome": "dataora utente prodotto prezzo sessione articolo",
    "Europe/Amsterdam": "tijd tijdstip klant prijs sessie gebruiker merk",
}
"""Zones by words that only logs of these languages have as names of columns."""


def words_of(name: str) -> list[str]:
    """Return the words of a column's name, that of the innermost field of a path."""
    last = name.rpartition(".")[2]
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", last).lower()
    return [word for word in re.split(r"[\W_]+", split) if word]


def name_score(name: str, role: str) -> float:
    """Return 1 for a usual name of a role, 0.5 where a word hints at it, else 0.

    A hint is the last word, or an id follows it: user_agent and session_duration hint at nothing.
    """
    usual, hints = (each.split() for each in ROLES[role])
    words = words_of(name)
    if "".join(words) in usual:
        return 1.0
    is_hint = bool(words) and words[-1] in {*hints, *_ID_WORDS}
    return 0.5 if is_hint and set(words) & set(hints) else 0.0


def zone_of(names: list[str]) -> tuple[str, list[str]]:
    """Return the zone that at least two names hint at, by their language, and these; else none."""
    joined = {"".join(words_of(name)): name for name in names}
    found = {
        zone: [joined[word] for word in words.split() if word in joined]
        for zone, words in ZONES.items()
    }
    zone = max(found, key=lambda each: len(found[each]))
    return (zone, found[zone]) if len(found[zone]) > 1 else ("", [])
